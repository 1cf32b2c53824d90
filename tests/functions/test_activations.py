"""Every activation of the case table has every property."""

import jax
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from moment_calculus.functions.table import ACTIVATIONS as SHIPPED
from tests.cases import ACTIVATIONS
from tests.checks.activations import ACTIVATION
from tests.checks.general import GENERAL, meetings


@pytest.mark.parametrize(("check", "case"), meetings([*ACTIVATION, *GENERAL], ACTIVATIONS))
def test_property(check, case):
    check(case)


@pytest.mark.parametrize("case", ACTIVATIONS, ids=lambda case: case.name)
def test_plain_functions_of_the_frameworks_agree(case):
    """The library's own function is the user's, on arrays of every framework."""
    x = np.linspace(-9, 9, 41) + 0.01
    expected = case.function(x)
    for array in (x, torch.as_tensor(x), jax.numpy.asarray(x)):
        assert_allclose(case.activation(array), expected, rtol=2e-5, atol=2e-6)
    assert_allclose(case.activation(x), expected, rtol=1e-9, atol=1e-12)


def test_no_activation_lacks_a_row():
    assert set(SHIPPED) <= {case.activation.name for case in ACTIVATIONS}
