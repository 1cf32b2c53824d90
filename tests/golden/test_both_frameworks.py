"""The golden programs have the same values and gradients in both frameworks, to 1e-10.

One in ten programs, and among the slow tests every program once; ``python -m tests.golden agree``
compares all of them in every mode.
"""

from __future__ import annotations

import pytest

from tests.golden.agreement import covering, difference

PROGRAMS = covering(programs=16)
# Of networks full covariance refuses what is not its own, at once; NumPyro traces the others long.
NETWORKS = [name for name in PROGRAMS if name.startswith("network")]
# What XLA compiles for seconds.
LONG = {
    "table sum_of_neighbour_differences, backward",
    "table repeated_index, backward",
    "residual, DVIGuide, BB-α full",
    "gamma, DVIGuide, BB-α diagonal",
    "activation gelu, full",
    "categorical, DVIGuide, ELBO dvi",
    "robust, DVIGuide, ELBO backward",
}
FAST = {*PROGRAMS[: -len(NETWORKS) : 10], NETWORKS[0]} - LONG


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else pytest.mark.slow, id=name)
        for name in PROGRAMS
    ],
)
def test_values_and_gradients_agree(name, double_precision, double_precision_in_jax):
    assert difference(name) == ""
