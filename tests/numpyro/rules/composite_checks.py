"""What the tests of composites and normalisations share: inputs, and both front ends on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from numpy.testing import assert_allclose

import numpyro_moments
import pyro_moments
from tests.numpyro.one_program import propagate_compiled
from tests.numpyro.rules.spelled_out import FEATURES, SHAPE

_random = np.random.default_rng(3)
_factors = _random.normal(size=(*SHAPE, FEATURES))
MEAN = _random.normal(size=SHAPE)
COVARIANCE = _factors @ _factors.swapaxes(-1, -2) / FEATURES


def samples(count: int = 40_000) -> np.ndarray:
    """Draws of the shared input, [count, ...]."""
    random = np.random.default_rng(0)
    rows = zip(MEAN, COVARIANCE, strict=True)
    return np.stack([random.multivariate_normal(*row, size=count) for row in rows], axis=1)


def in_jax(
    function: Callable, covariance: str, evaluate: Callable = numpyro_moments.propagate
) -> numpyro_moments.Moments:
    """Moments of a function of the shared input."""
    moments = numpyro_moments.Moments(
        jnp.asarray(MEAN, float), covariance=jnp.asarray(COVARIANCE, float)
    )
    return evaluate(function, moments, covariance=covariance)


def agree(spelled: Callable, reference: Callable, covariance: str) -> None:
    """Both front ends give the same moments."""
    moments = pyro_moments.Moments(torch.tensor(MEAN), covariance=torch.tensor(COVARIANCE))
    expected = pyro_moments.propagate(reference, moments, covariance=covariance)
    with jax.enable_x64(True):
        found = in_jax(spelled, covariance, propagate_compiled)
    for part in ("mean", "variance", "covariance"):
        left, right = getattr(found, part), getattr(expected, part)
        if right is None or left is None:
            assert covariance == "diagonal" or found.mean.ndim < 2
        else:
            assert_allclose(left, right, rtol=1e-10, atol=1e-10, err_msg=part)


def check_single_precision(
    function: Callable, mean: np.ndarray, covariance: np.ndarray, *, rtol: float, atol: float
) -> None:
    """Moments in single precision are those in double, and no variance is negative."""

    def moments(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        given = numpyro_moments.Moments(
            jnp.asarray(mean, dtype), covariance=jnp.asarray(covariance, dtype)
        )
        found = propagate_compiled(function, given, covariance="full")
        return np.asarray(found.mean), np.asarray(found.variance)

    single = moments(jnp.float32)
    with jax.enable_x64(True):
        double = moments(jnp.float64)
    for left, right in zip(single, double, strict=True):
        assert_allclose(left, right, rtol=rtol, atol=atol)
    assert np.all(single[1] >= 0)
