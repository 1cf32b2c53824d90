"""Functions of elements that a program repeats, and that are equal therefore, by quadrature."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import numpyro_moments
import pyro_moments
from tests.numpyro.one_program import propagate_traced

MEAN = np.array([[0.4], [-0.7], [1.5]])
VARIANCE = np.array([[1.2], [0.6], [0.3]])
NODES = np.linspace(-12.0, 12.0, 24_001)
SERIES = 5e-3  # what 24 terms of a series leave of functions that differ from each other

Program = Callable[[Any, Any, Any], Any]  # of a host's arrays, its relu and x [3, 1]
REPEATED: dict[str, Program] = {
    "along the features": lambda xp, relu, x: relu(xp.broadcast_to(x, (3, 4))).sum(-1),
    "along the batch": lambda xp, relu, x: relu(xp.broadcast_to(x, (2, 3, 1))).sum(0)[:, 0],
    "an affine image": lambda xp, relu, x: relu(2 * xp.broadcast_to(x, (3, 4)) + 1).sum(-1),
    "tiles": lambda xp, relu, x: relu(xp.tile(x, (1, 3))).sum(-1),
    "an index of features": lambda xp, relu, x: relu(x[:, np.array([0, 0, 0])]).sum(-1),
    "an index of rows": lambda xp, relu, x: relu(x[np.array([0, 0, 1, 1, 2, 2])])[:, 0][:2].sum(-1),
    "rows again": lambda xp, relu, x: relu(xp.broadcast_to(x, (3, 4)).reshape(3, 2, 2)).sum((1, 2)),
    "beside itself": lambda xp, relu, x: relu(xp.concatenate([x, x], -1)).sum(-1),
    "a stack": lambda xp, relu, x: relu(xp.stack([x, x], -1)).sum(-1)[:, 0],
    "squares": lambda xp, relu, x: xp.square(xp.broadcast_to(x, (3, 4))).sum(-1),
    "products": lambda xp, relu, x: (xp.broadcast_to(x, (3, 4)) * relu(x)).sum(-1),
}
SERIAL: dict[str, Program] = {
    "added to zeros": lambda xp, relu, x: relu(x + xp.zeros((3, 4))).sum(-1),
    "shifted each": lambda xp, relu, x: relu(x + xp.linspace(-1.0, 1.0, 4)).sum(-1),
}


def by_quadrature(program: Program) -> np.ndarray:
    """The variance of a program's result."""
    weights = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
    points = MEAN + np.sqrt(VARIANCE) * NODES[:, None, None]
    values = torch.vmap(partial(program, torch, torch.relu))(torch.as_tensor(points)).numpy()
    return weights @ (values - weights @ values) ** 2


def of_pyro(program: Program) -> np.ndarray:
    """The variance that Pyro's front end states."""
    x = pyro_moments.Moments(torch.as_tensor(MEAN), variance=torch.as_tensor(VARIANCE))
    function = partial(program, torch, torch.relu)
    return np.asarray(pyro_moments.propagate(function, x, covariance="backward").variance)


def of_numpyro(program: Program) -> np.ndarray:
    """The variance that NumPyro's front end states."""
    x = numpyro_moments.Moments(jnp.asarray(MEAN), variance=jnp.asarray(VARIANCE))
    function = partial(program, jnp, jax.nn.relu)
    return np.asarray(propagate_traced(function, x, covariance="backward").variance)


def check(name: str, variance_of: Callable[[Program], np.ndarray]) -> None:
    """A front end against quadrature."""
    program, rtol = (REPEATED | SERIAL)[name], SERIES if name in SERIAL else 1e-6  # of kinks
    np.testing.assert_allclose(variance_of(program), by_quadrature(program), rtol)


@pytest.mark.parametrize("name", [*REPEATED, *SERIAL])
@pytest.mark.usefixtures("double_precision")
def test_equal_elements_stay_equal(name):
    check(name, of_pyro)


FEW = "along the features"


@pytest.mark.parametrize("name", [FEW, *(n for n in REPEATED | SERIAL if n != FEW)])
@pytest.mark.usefixtures("double_precision", "double_precision_in_jax")
def test_equal_elements_stay_equal_in_numpyro(name):
    check(name, of_numpyro)
