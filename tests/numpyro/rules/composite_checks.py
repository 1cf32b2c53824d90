"""What the tests of composites and normalisations share: inputs, and both front ends on them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.testing import assert_allclose

import numpyro_moments
import pyro_moments
from tests.checks.jaxprs import by_numpy
from tests.numpyro.one_program import propagate_traced
from tests.numpyro.rules.spelled_out import FEATURES, SHAPE

_random = np.random.default_rng(3)
_factors = _random.normal(size=(*SHAPE, FEATURES))
MEAN = _random.normal(size=SHAPE)
COVARIANCE = _factors @ _factors.swapaxes(-1, -2) / FEATURES


def shared_input() -> numpyro_moments.Moments:
    return numpyro_moments.Moments(
        jnp.asarray(MEAN, float), covariance=jnp.asarray(COVARIANCE, float)
    )


def in_jax(
    function: Callable, covariance: str, evaluate: Callable = numpyro_moments.propagate
) -> numpyro_moments.Moments:
    """Moments of a function of the shared input."""
    return evaluate(function, shared_input(), covariance=covariance)


@functools.cache
def in_torch(function: Callable, covariance: str) -> pyro_moments.Moments:
    """Moments of a function of the shared input; the spellings of one function share them."""
    moments = pyro_moments.Moments(torch.tensor(MEAN), covariance=torch.tensor(COVARIANCE))
    return pyro_moments.propagate(function, moments, covariance=covariance)


def agree(
    found: numpyro_moments.Moments, reference: Callable, covariance: str, name: str = ""
) -> None:
    """The Pyro front end gives the same moments for the shared input."""
    expected = in_torch(reference, covariance)
    for part in ("mean", "variance", "covariance"):
        left, right = getattr(found, part), getattr(expected, part)
        if right is None or left is None:
            assert covariance == "diagonal" or found.mean.ndim < 2
        else:
            assert_allclose(left, right, rtol=1e-10, atol=1e-10, err_msg=f"{part} {name}")


def agree_in_one_program(spelled: Callable, reference: Callable, covariance: str) -> None:
    """Both front ends give the same moments."""
    with jax.enable_x64(True):
        found = in_jax(spelled, covariance, propagate_traced)
    agree(found, reference, covariance)


@functools.cache
def _program(function: Callable) -> Callable:
    """One for all inputs of a precision."""
    return by_numpy(lambda given: numpyro_moments.propagate(function, given, covariance="full"))


def check_single_precision(
    function: Callable, mean: np.ndarray, covariance: np.ndarray, *, rtol: float, atol: float
) -> None:
    """Moments in single precision are those in double, and no variance is negative."""

    def moments(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        given = numpyro_moments.Moments(
            jnp.asarray(mean, dtype), covariance=jnp.asarray(covariance, dtype)
        )
        found = _program(function)(given)
        return np.asarray(found.mean), np.asarray(found.variance)

    single = moments(jnp.float32)
    with jax.enable_x64(True):
        double = moments(jnp.float64)
    for left, right in zip(single, double, strict=True):
        assert_allclose(left, right, rtol=rtol, atol=atol)
    assert np.all(single[1] >= 0)
