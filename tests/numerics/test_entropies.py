"""Entropies by sums and quadrature, and points of equal weight, against SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from moment_calculus.numerics.distributions import (
    binary_entropy,
    class_entropy,
    density_entropy,
    empirical_quantile,
    inverse,
    sum_over_counts,
    surprisal_of_log,
)
from moment_calculus.numerics.quadrature import low_discrepancy
from moment_calculus.predictions.marginals import edge_levels

LEVELS = edge_levels(np.zeros(1))[:, 0]


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
    edges = law.ppf(LEVELS)[:, None]
    bounds = [float(end) for end in law.support()]
    found = density_entropy(law.logpdf, np.concatenate([edges, edges], axis=1), tuple(bounds))
    np.testing.assert_allclose(found, law.entropy(), rtol=0, atol=1e-7)


def test_a_density_with_an_atom_has_none():
    def log_density(value):
        return math.log(0.7) + scipy.stats.norm.logpdf(value)

    assert np.isnan(density_entropy(log_density, scipy.stats.norm.ppf(LEVELS)))


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
        return np.exp(log_p), surprisal_of_log(log_p)

    found = sum_over_counts(terms, law.mean(), law.var(), bounds)
    counts = np.arange(4000.0)[:, None]
    exact = surprisal_of_log(law.logpmf(counts)).sum(0)
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def test_counts_without_moments_have_no_total():
    found = sum_over_counts(lambda k: (k, k), np.array([math.nan, 1.0]), np.array([1.0, math.inf]))
    assert np.isnan(found).all()


def test_what_cannot_happen_adds_nothing():
    np.testing.assert_array_equal(binary_entropy(np.array([0.0, 1.0])), 0.0)
    np.testing.assert_array_equal(class_entropy(np.array([[1.0, 0.0], [0.0, 1.0]])), 0.0)
    np.testing.assert_array_equal(surprisal_of_log(np.array([-np.inf, 0.0, -1e4])), 0.0)
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


def test_inversion_may_stop_early():
    calls = []

    def cumulative(x):
        calls.append(x)
        return scipy.stats.norm.cdf(x)

    levels = np.array([1e-6, 0.3, 0.999])
    found = inverse(cumulative, levels, 0 * levels, 0 * levels + 1, slack=0.1 * levels)
    np.testing.assert_allclose(scipy.stats.norm.cdf(found), levels, rtol=0.1001)
    assert len(calls) < 25
