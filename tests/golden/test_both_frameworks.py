"""The golden programs have the same values and gradients in both frameworks, to 1e-10.

Every program once; ``python -m tests.golden agree`` compares all of them in every mode.
"""

import pytest

from tests.golden.agreement import covering, difference

PROGRAMS = covering(programs=16)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_gradients_agree(name, double_precision, double_precision_in_jax):
    assert difference(name) == ""
