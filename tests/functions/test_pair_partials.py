"""Derivatives of covariances of pairs in closed form, against differences of the covariances."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from moment_calculus.functions.base import Delegating
from moment_calculus.functions.families.relu import LeakyReLU, ReLU
from moment_calculus.functions.pairs.covariance import ExactPairs, _has_pair_partials

SIZE, STEP = 5, 1e-5
FUNCTIONS = [ReLU(), LeakyReLU(0.1), LeakyReLU(-0.4)]
rng = np.random.default_rng(3)


def gaussian(dependence):
    """Means, variances and covariances of a batch, with correlations of either sign."""
    factor = rng.normal(size=(4, SIZE, SIZE))
    covariance = factor @ factor.swapaxes(-1, -2) + np.eye(SIZE) / dependence
    return 2 * rng.normal(size=(4, SIZE)), np.diagonal(covariance, axis1=-2, axis2=-1), covariance


@pytest.mark.parametrize("dependence", [0.1, 100.0])
@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_they_are_the_differences(function, dependence):
    """By one mean, one variance and all covariances at a time, off the diagonal."""
    mean, variance, covariance = gaussian(dependence)
    found = function.pair_partials(mean, variance, covariance)
    off = ~np.eye(SIZE, dtype=bool)
    for place in range(SIZE):
        others = off[place]
        for moment in (0, 1):
            step = np.zeros([2, 1, SIZE])
            step[moment, :, place] = STEP
            high, low = (
                function.pair_covariance(mean + by * step[0], variance + by * step[1], covariance)
                for by in (1, -1)
            )
            expected = ((high - low) / (2 * STEP))[:, place, others]
            ours = found[moment][:, place, others]
            np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)
    high, low = (
        function.pair_covariance(mean, variance, covariance + by * off) for by in (STEP, -STEP)
    )
    slopes = ((high - low) / (2 * STEP))[:, off]
    np.testing.assert_allclose(found[2][:, off], slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("function", FUNCTIONS, ids=str)
def test_all_arrays_and_precisions_agree(function):
    arrays = gaussian(10.0)
    expected = function.pair_partials(*arrays)
    with jax.enable_x64(True):
        in_jax = function.pair_partials(*map(jnp.asarray, arrays))
        in_torch = function.pair_partials(*map(torch.tensor, arrays))
    in_single = function.pair_partials(*(part.astype(np.float32) for part in arrays))
    for parts in zip(expected, in_jax, in_torch, in_single, strict=True):
        assert np.isfinite(parts[0]).all()
        np.testing.assert_allclose(parts[1], parts[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(parts[2], parts[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(parts[3], parts[0], rtol=1e-4, atol=1e-5)


def test_a_class_with_covariances_of_its_own_does_not_inherit_them():
    class Halved(ReLU):
        def pair_covariance(self, *moments):
            return super().pair_covariance(*moments) / 2

    assert _has_pair_partials(ExactPairs(ReLU(), 1))
    assert not _has_pair_partials(ExactPairs(Halved(), 1))
    assert not _has_pair_partials(ExactPairs(Delegating(ReLU()), 1))
