"""The golden programs have the same values and gradients in both frameworks, to 1e-10.

A seeded sample; ``python -m tests.golden agree`` compares all of them.
"""

from __future__ import annotations

import pytest

from tests.golden.agreement import difference, sample

SAMPLE = sample({"random": 10, "table": 60, "activation": 18, "losses": 10})
LARGER = sample({"random": 40, "table": 400, "activation": 400, "losses": 50})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SAMPLE else pytest.mark.slow, id=name)
        for name in LARGER
    ],
)
def test_values_and_gradients_agree(name, double_precision, double_precision_in_jax):
    assert difference(name) == ""
