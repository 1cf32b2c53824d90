"""Quantiles by search and by summation, against SciPy's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch

from moment_calculus.numerics.distributions import (
    class_quantile,
    count_cumulative,
    count_quantile,
    inverse,
)
from moment_calculus.numerics.special import ndtr

LEVELS = np.array([1e-6, 0.1, 0.7, 0.99])
CONTINUOUS = [scipy.stats.cauchy(2.0), scipy.stats.norm(1e5, 1e-3), scipy.stats.lognorm(9.0)]


@pytest.mark.parametrize("fn", CONTINUOUS, ids=["cauchy", "normal", "lognormal"])
@pytest.mark.parametrize("start", [(0.0, 1.0), (np.nan, np.inf), (1e200, 1e200), (3.0, 0.0)])
def test_inverse_of_a_distribution_function(fn, start):
    centre, width = (np.full(4, number) for number in start)
    found = inverse(fn.cdf, LEVELS, centre, width, fn.support())
    np.testing.assert_allclose(found, fn.ppf(LEVELS), rtol=1e-9)


@pytest.mark.parametrize("xp", [np.asarray, torch.as_tensor, jnp.asarray])
def test_inverse_in_every_framework(xp):
    with jax.enable_x64(True):
        parts = (xp(part) for part in (LEVELS, np.zeros(4), np.ones(4)))
        found = np.asarray(inverse(lambda x: ndtr((x - 3) / 0.1), *parts))
    np.testing.assert_allclose(found, scipy.stats.norm(3, 0.1).ppf(LEVELS))


def test_what_is_not_known_or_not_reached():
    unknown = inverse(lambda x: np.nan * x, LEVELS, np.zeros(4), np.ones(4), (0.0, np.inf))
    assert np.isnan(unknown).all()
    bounded = inverse(lambda x: 0.5 + 0 * x, LEVELS, np.zeros(4), np.ones(4), (-1.0, 2.0))
    np.testing.assert_allclose(bounded, [-1.0, -1.0, 2.0, 2.0], atol=1e-12)


@pytest.mark.parametrize("rate", [0.01, 3.0, 400.0])
def test_quantiles_of_counts(rate):
    fn = scipy.stats.poisson(rate)
    mean = np.full(4, rate)
    found = count_quantile(fn.pmf, LEVELS, mean, mean)
    np.testing.assert_array_equal(found, fn.ppf(LEVELS))


def test_bounds_of_counts():
    fn = scipy.stats.binom(5, 0.9)
    mean, variance = (np.full(4, moment) for moment in fn.stats())
    counts = count_quantile(lambda k: 0.999 * fn.pmf(k), LEVELS + 0.0099, mean, variance, (0, 5))
    assert counts.max() == 5  # the sum falls short of the last level
    infinite = np.full(4, np.inf)
    assert np.isnan(count_quantile(fn.pmf, LEVELS, mean, infinite)).all()
    first = scipy.stats.geom(0.3)
    moments = (np.full(4, moment) for moment in first.stats())
    found = count_quantile(first.pmf, LEVELS, *moments, (1, np.inf))
    np.testing.assert_array_equal(found, first.ppf(LEVELS))


def test_quantiles_of_classes():
    probabilities = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    found = [class_quantile(probabilities, np.array(level)) for level in (0.1, 0.4, 0.99)]
    np.testing.assert_array_equal(found, [[0, 2], [1, 2], [2, 2]])


@pytest.mark.parametrize("xp", [np.asarray, torch.as_tensor, jnp.asarray])
def test_sums_of_counts_in_every_framework(xp):
    fn, values = scipy.stats.binom(400, 0.3), np.array([-1.0, 0.0, 120.3, 400.0, 1e9, np.nan])
    pmf = xp(np.append(fn.pmf(np.arange(401)), np.nan))  # nothing is asked beyond the largest

    def probability(counts):
        return pmf[counts.astype(int) if hasattr(counts, "astype") else counts.long()]

    with jax.enable_x64(True):
        found = np.asarray(count_cumulative(probability, xp(values), (0, 400)))
    np.testing.assert_allclose(found, fn.cdf(values), atol=1e-12)


def test_sums_of_counts_without_a_largest():
    fn = scipy.stats.geom(0.3)
    values = np.array([0.0, 1.0, 7.0, 1e9, np.inf])
    found = count_cumulative(fn.pmf, values, (1, np.inf))
    np.testing.assert_allclose(found, [0.0, 0.3, fn.cdf(7), np.nan, 1.0])
