"""Quantiles, cumulative probabilities and entropies, against SciPy and closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch

from moment_calculus.numerics.arrays import ndtr
from moment_calculus.numerics.distributions import (
    binary_entropy,
    class_entropy,
    class_quantile,
    count_cumulative,
    count_quantile,
    density_entropy,
    empirical_quantile,
    entropy_term_from_log,
    invert_increasing,
    sum_over_counts,
)
from moment_calculus.numerics.quadrature import low_discrepancy
from moment_calculus.predictions.marginals import edge_levels

LEVELS = np.array([1e-6, 0.1, 0.7, 0.99])
CONTINUOUS = [scipy.stats.cauchy(2.0), scipy.stats.norm(1e5, 1e-3), scipy.stats.lognorm(9.0)]


@pytest.mark.parametrize("fn", CONTINUOUS, ids=["cauchy", "normal", "lognormal"])
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("start", [(0.0, 1.0), (np.nan, np.inf), (1e200, 1e200), (3.0, 0.0)])
def test_inverse_of_a_distribution_function(fn, start, continuous):
    centre, width = (np.full(4, number) for number in start)
    found = invert_increasing(fn.cdf, LEVELS, centre, width, fn.support(), continuous=continuous)
    np.testing.assert_allclose(found, fn.ppf(LEVELS), rtol=1e-9)


@pytest.mark.parametrize("xp", [np.asarray, torch.as_tensor, jnp.asarray])
def test_inverse_in_every_framework(xp):
    with jax.enable_x64(True):
        parts = (xp(part) for part in (LEVELS, np.zeros(4), np.ones(4)))
        found = np.asarray(invert_increasing(lambda x: ndtr((x - 3) / 0.1), *parts))
    np.testing.assert_allclose(found, scipy.stats.norm(3, 0.1).ppf(LEVELS))


def test_what_is_not_known_or_not_reached():
    unknown = invert_increasing(
        lambda x: np.nan * x, LEVELS, np.zeros(4), np.ones(4), (0.0, np.inf)
    )
    assert np.isnan(unknown).all()
    bounded = invert_increasing(lambda x: 0.5 + 0 * x, LEVELS, np.zeros(4), np.ones(4), (-1.0, 2.0))
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


EDGE_LEVELS = edge_levels(np.zeros(1))[:, 0]


@pytest.mark.parametrize(
    "law",
    [
        scipy.stats.norm(1e6, 1e-3),
        scipy.stats.t(0.7),
        scipy.stats.cauchy(),
        scipy.stats.laplace(2.0),
        scipy.stats.gamma(0.05, scale=1e3),
        scipy.stats.gamma(2.0),
        scipy.stats.lognorm(6.0),
        scipy.stats.uniform(3.0, 2.0),
        scipy.stats.beta(0.3, 0.8),
        scipy.stats.weibull_max(0.7),
    ],
    ids=lambda law: f"{law.dist.name} {law.args}",
)
def test_densities(law):
    edges = law.ppf(EDGE_LEVELS)[:, None]
    bounds = [float(end) for end in law.support()]
    found = density_entropy(law.logpdf, np.concatenate([edges, edges], axis=1), tuple(bounds))
    np.testing.assert_allclose(found, law.entropy(), rtol=0, atol=1e-7)


def test_a_density_with_an_atom_has_none():
    def log_density(value):
        return math.log(0.7) + scipy.stats.norm.logpdf(value)

    assert np.isnan(density_entropy(log_density, scipy.stats.norm.ppf(EDGE_LEVELS)))


@pytest.mark.parametrize(
    ("law", "bounds"),
    [
        (scipy.stats.poisson(np.array([0.0, 0.3, 40.0, 900.0])), (0, math.inf)),
        (scipy.stats.geom(np.array([0.02, 0.99, 0.5, 0.9]), loc=-1), (0, math.inf)),
        (scipy.stats.binom(np.array([0, 1, 7, 200]), 0.3), (0, np.array([0.0, 1.0, 7.0, 200.0]))),
        (scipy.stats.bernoulli(np.array([0.0, 1.0, 0.5, 1e-9])), (0, 1)),
    ],
    ids=["poisson", "geometric", "binomial", "bernoulli"],
)
def test_counts(law, bounds):
    def terms(counts):
        assert (counts <= bounds[1]).all()
        log_p = law.logpmf(counts)
        return np.exp(log_p), entropy_term_from_log(log_p)

    found = sum_over_counts(terms, law.mean(), law.var(), bounds)
    counts = np.arange(4000.0)[:, None]
    exact = entropy_term_from_log(law.logpmf(counts)).sum(0)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def test_counts_without_moments_have_no_total():
    found = sum_over_counts(lambda k: (k, k), np.array([math.nan, 1.0]), np.array([1.0, math.inf]))
    assert np.isnan(found).all()


def test_what_cannot_happen_adds_nothing():
    np.testing.assert_array_equal(binary_entropy(np.array([0.0, 1.0])), 0.0)
    np.testing.assert_array_equal(class_entropy(np.array([[1.0, 0.0], [0.0, 1.0]])), 0.0)
    np.testing.assert_array_equal(entropy_term_from_log(np.array([-np.inf, 0.0, -1e4])), 0.0)
    assert np.isnan(binary_entropy(np.array(np.nan)))


def test_points_fill_the_space():
    line = low_discrepancy(1024, 1)[:, 0]
    np.testing.assert_allclose(line, scipy.stats.norm.ppf((np.arange(1024) + 0.5) / 1024))
    plane = low_discrepancy(1024, 2)
    np.testing.assert_allclose(plane.mean(0), 0.0, atol=1e-9)
    np.testing.assert_allclose(plane.T @ plane / 1024, np.eye(2), atol=6e-3)


def test_quantiles_of_points():
    values = np.random.default_rng(0).normal(size=(11, 3))
    levels = np.array([0.001, 0.1, 0.5, 0.93, 0.999])
    exact = np.quantile(values, levels, axis=0, method="hazen")
    np.testing.assert_allclose(empirical_quantile(values, levels), exact)
    np.testing.assert_array_equal(
        empirical_quantile(values[:1], levels), np.tile(values[0], (5, 1))
    )


def test_a_continuous_inverse_takes_few_evaluations():
    """Of a mixture of two, in whose gap the distribution function is flat."""
    calls = []

    def cumulative(x):
        calls.append(x)
        return (scipy.stats.norm.cdf(x) + scipy.stats.norm.cdf(x - 30)) / 2

    levels = np.array([1e-4, 0.05, 0.95])
    found = invert_increasing(cumulative, levels, 15 + 0 * levels, 15 + 0 * levels, continuous=True)
    np.testing.assert_allclose(cumulative(found), levels, rtol=1e-8)
    assert len(calls) < 40
    calls.clear()
    centre = scipy.stats.norm.ppf(levels * 1.01)
    invert_increasing(
        lambda x: calls.append(x) or scipy.stats.t(9).cdf(x),
        levels,
        centre,
        0.3 + 0 * levels,
        continuous=True,
    )
    assert len(calls) < 15


def test_inversion_may_stop_early():
    calls = []

    def cumulative(x):
        calls.append(x)
        return scipy.stats.norm.cdf(x)

    levels = np.array([1e-6, 0.3, 0.999])
    found = invert_increasing(cumulative, levels, 0 * levels, 0 * levels + 1, slack=0.1 * levels)
    np.testing.assert_allclose(scipy.stats.norm.cdf(found), levels, rtol=0.1001)
    assert len(calls) < 25
