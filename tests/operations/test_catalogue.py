"""Functions of one value in the catalogue, in NumPy, are those that torch has by their names."""

import numpy as np
import pytest
import torch
from jax import lax

from moment_calculus.operations import catalogue as ops
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.rules.elementwise import PRIMITIVES

HOMES = (torch, torch.special, torch.nn.functional)
OTHERS = {  # without a function of this name and of one argument in torch; None: with parameters
    "cbrt": np.cbrt,
    "clamp": np.positive,  # without bounds
    "gelu_tanh": lambda x: torch.nn.functional.gelu(torch.as_tensor(x), approximate="tanh").numpy(),
    "heaviside": np.ones_like,
    "identity": np.positive,
    "power": None,
    "threshold": None,
}
NAMES = [name for name in ops.FUNCTIONS if OTHERS.get(name, name) is not None]
MEAN = np.array([[0.3, -0.8, 1.2]])


def in_unit_interval():
    """A function of a Gaussian with values between 0 and 1, which hardly varies."""
    flow = propagation_of("full", "exact")
    x = as_value(Moments(MEAN, variance=np.full_like(MEAN, 1e-12)), "x", flow)
    return ops.FUNCTIONS["sigmoid"].rule(x)


def plain(name, x):
    if name in OTHERS:
        return OTHERS[name](x)
    function = next(getattr(home, name) for home in HOMES if hasattr(home, name))
    return function(torch.as_tensor(x)).numpy()


@pytest.mark.parametrize("name", NAMES)
def test_a_function_in_numpy_is_that_of_its_name(name):
    value = in_unit_interval()
    value = ops.scale_shift(value, 1.0, 1.0) if name == "acosh" else value
    found = ops.FUNCTIONS[name].rule(value)
    expected = plain(name, value.at_mean)
    np.testing.assert_allclose(found.at_mean, expected, rtol=1e-12)
    np.testing.assert_allclose(found.gaussian().mean, expected, rtol=1e-6, atol=1e-9)


def test_primitives_are_functions_of_the_catalogue():
    for name in PRIMITIVES.split():
        assert hasattr(lax, f"{name}_p")
        assert name in ops.FUNCTIONS
