"""Pareto-smoothed importance weights, against ArviZ's and closed forms."""

from __future__ import annotations

import warnings

import arviz as az
import numpy as np
import pytest
from scipy import stats

from moment_calculus.numerics.pareto import check_ratios, largest_reliable_shape, smooth_weights


@pytest.mark.parametrize("count", [11, 40, 1000])
@pytest.mark.parametrize("scale", [1e-6, 0.1, 3.0])
def test_they_are_those_of_arviz(count, scale):
    ratios = scale * np.random.default_rng(0).standard_t(3, size=(2, 3, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logs, shapes = az.psislw(ratios.copy())
    found = smooth_weights(ratios)
    np.testing.assert_allclose(np.exp(found.log), np.exp(logs), atol=1e-12)
    known = np.where(np.ptp(ratios, axis=-1) < 1e-3, 0.0, shapes)
    np.testing.assert_allclose(found.shape, known, rtol=1e-9)


def test_blocks_of_rows_are_those_of_all_rows():
    ratios = np.random.default_rng(1).normal(size=(700, 500))  # more than are smoothed at once
    whole, one = smooth_weights(ratios), smooth_weights(ratios[600])
    np.testing.assert_allclose(whole.log[600], one.log)
    assert whole.shape[600] == pytest.approx(float(one.shape))


def test_k_hat_is_judged_together_with_the_share():
    x = np.random.default_rng(2).normal(size=4000)
    narrow = smooth_weights(0.6 * x**2)  # whose shape is 1.2
    even = smooth_weights(0.02 * np.random.default_rng(0).standard_t(1.2, size=4000).clip(-50, 50))
    right = smooth_weights(stats.norm.logpdf(x, scale=0.8) - stats.norm.logpdf(x))
    assert narrow.shape > largest_reliable_shape(4000)
    assert not narrow.is_reliable
    assert even.shape > largest_reliable_shape(4000)
    assert even.share > 0.9
    assert even.is_reliable
    assert right.is_reliable
    few = smooth_weights(-400 * x**2)  # a bounded tail, but hardly a draw that counts
    assert few.share < 0.1
    assert not few.is_reliable


def test_moments_are_those_of_the_target():
    x = np.random.default_rng(3).normal(size=(20_000, 2))
    target = stats.multivariate_normal([0.3, -0.2], [[0.7, 0.2], [0.2, 0.5]])
    weights = smooth_weights(target.logpdf(x) - stats.norm.logpdf(x).sum(-1))
    worth = 20_000 * float(weights.share)
    np.testing.assert_allclose(weights.mean(x), target.mean, atol=4 * (0.7 / worth) ** 0.5)
    np.testing.assert_allclose(weights.covariance(x), target.cov, atol=4 * 0.7 * (2 / worth) ** 0.5)
    deviation = np.sqrt(np.diag(weights.covariance(x)))
    np.testing.assert_allclose(weights.standard_deviation(x), deviation)


def test_draws_come_as_often_as_they_weigh():
    weights = smooth_weights(np.random.default_rng(4).normal(size=300))
    places = weights.resample_indices(np.random.default_rng(5), 1000)
    counts = np.bincount(places, minlength=300)
    assert (np.abs(counts - 1000 * np.exp(weights.log)) < 1).all()
    np.testing.assert_array_equal(places, weights.resample_indices(np.random.default_rng(5), 1000))
    assert (np.diff(places) < 0).any()


def test_draws_of_which_no_weights_can_be_made():
    with pytest.raises(ValueError, match="5 draws have no importance weights"):
        check_ratios(np.zeros(5))
    with pytest.raises(ValueError, match="not finite"):
        check_ratios(np.full(50, np.nan))
