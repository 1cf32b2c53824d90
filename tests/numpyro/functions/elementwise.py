"""What the tests of elementwise functions share: inputs, an oracle, and values as they flow."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.evaluation.interpreter import Interpreter
from tests.checks.jaxprs import by_numpy

MEAN = np.array([[1.0, -2.0, 0.1], [0.5, 3.0, -0.7]])
SCALE = np.array([[0.5, 1.5, 0.2], [0.9, 0.3, 2.0]])
VARIANCE = SCALE**2


def noisy(dtype: Any = np.float64) -> Moments:
    """Uncertain inputs, in arrays of their own: JAX keeps what it made of an array of NumPy's."""
    return Moments(MEAN.astype(dtype), variance=VARIANCE.astype(dtype))


def grid(function: Callable) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of a plain elementwise function, by a fine grid over each component."""
    return grids({"": function}, 200_001)[""]


def grids(functions: dict[str, Callable], points: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The same of several functions, by one program."""
    z = np.linspace(-9, 9, points)
    weights = np.exp(-0.5 * z**2)
    weights = (weights / weights.sum())[:, None, None]
    with jax.enable_x64(True):
        program = by_numpy(lambda at: {n: jax.vmap(f)(at) for n, f in functions.items()})
        values = program(jnp.asarray(MEAN + SCALE * z[:, None, None]))
    return {name: _averaged(np.asarray(part), weights) for name, part in values.items()}


def _averaged(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = (weights * values).sum(0)
    return mean, (weights * (values - mean) ** 2).sum(0)


def traced(function: Callable, dtype: Any) -> Any:
    """The value that a function of a Gaussian of shape (2, 3) is, before its moments are asked."""
    with jax.enable_x64(dtype is np.float64):
        inputs = Moments(jnp.asarray(MEAN, dtype), variance=jnp.asarray(VARIANCE, dtype))
        value = as_value(inputs, "h", propagation_of("diagonal", "exact"))
        program = jax.make_jaxpr(function)(jax.ShapeDtypeStruct(MEAN.shape, dtype))
        return Interpreter().run_closed(program, [value])[0]
