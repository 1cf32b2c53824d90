"""The golden programs have the same values and gradients in both frameworks, to 1e-10.

A seeded sample, and among the slow tests every program once; ``python -m tests.golden agree``
compares all of them.
"""

from __future__ import annotations

import pytest

from tests.golden.agreement import covering, difference, sample

SAMPLE = sample({"random": 8, "table": 30, "activation": 10, "losses": 8})
LARGER = dict.fromkeys([*SAMPLE, *covering(programs=16)])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.slow, id=name)
        for name in LARGER
    ],
)
def test_values_and_gradients_agree(name, double_precision, double_precision_in_jax):
    assert difference(name) == ""
