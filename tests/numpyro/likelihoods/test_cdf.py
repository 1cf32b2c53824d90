"""Predictive distribution functions, against exact mixtures and the quantiles that invert them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from numpyro_moments import Prediction, SampledPrediction, UnsupportedMoments
from tests.checks.jaxprs import by_numpy
from tests.checks.predictions import LEVELS, check_distribution_function, check_levels
from tests.numpyro.likelihoods.cases import CASES, CUTS, MEAN, VARIANCE, distribution, latent
from tests.numpyro.likelihoods.test_quantiles_and_draws import DISCRETE, KEY, points, prediction
from tests.numpyro.one_program import evaluated

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def test_of_continuous_distributions():
    name = "LogNormal, scale"

    def both(mean, variance):
        found = prediction(name, mean, variance)
        quantiles = found.quantile(LEVELS)
        ends = jnp.array([-jnp.inf, jnp.nan, jnp.inf])[:, None] + jnp.zeros(3)
        return found.cdf(jnp.concatenate([quantiles, ends])), quantiles

    below, quantiles = map(np.asarray, evaluated(both, MEAN, VARIANCE))
    check_levels(below[:-3])
    np.testing.assert_array_equal(below[-3:, 0], [0, np.nan, 1])
    f, weights = points()
    exact = [(weights * CASES[name][0](f).cdf(value)).sum(0) for value in quantiles]
    np.testing.assert_allclose(below[:-3], exact, atol=2e-6)


@pytest.mark.parametrize("name", DISCRETE)
def test_of_counts(name):
    f, weights = points()
    last = getattr(CASES[name][0](f).support, "upper_bound", 1 if "Bernoulli" in name else 30)
    counts = np.arange(int(np.max(last)) + 1)
    log_prob = by_numpy(lambda f, k: CASES[name][0](f).log_prob(k))
    exact = np.stack([(weights * np.exp(log_prob(f, k))).sum(0) for k in counts]).cumsum(0)
    wide = np.broadcast_to(counts[:, None] + 0.7, exact.shape)
    found = evaluated(lambda *moments: prediction(name, *moments).cdf(wide), MEAN, VARIANCE)
    np.testing.assert_allclose(found, exact, atol=1e-8)


def test_of_ordered_classes():
    f, weights = points()
    exact = (weights[..., None] * dist.OrderedLogistic(f, CUTS).probs).sum(0).cumsum(-1)
    found = prediction("OrderedLogistic")
    for k in range(len(CUTS) + 1):
        np.testing.assert_allclose(found.cdf(np.full(3, k)), exact[:, k], rtol=1e-6)


@pytest.mark.parametrize("x64", [False, True])
def test_of_normal_distributions_and_mixtures(x64):
    with jax.enable_x64(x64):
        fn = distribution(lambda f: dist.Normal(f, 0.5), latent())
        found = Prediction("y", fn.expand([2, 3]).to_event(1))
        exact = scipy.stats.norm(MEAN, np.sqrt(VARIANCE + 0.25)).cdf(0.3)
        np.testing.assert_allclose(found.cdf(0.3), np.tile(exact, (2, 1)), rtol=1e-6)
        locations, value = jnp.array([[-1.0, 0.0], [0.5, 2.0]]), np.array([0.4, 1.2])
        counts = SampledPrediction("y", dist.Poisson(jnp.exp(locations)))
        exact = scipy.stats.poisson(np.exp(locations)).cdf(value).mean(0)
        np.testing.assert_allclose(counts.cdf(value), exact, rtol=1e-5)
        normal = SampledPrediction("y", dist.Normal(locations, 0.5))
        draws = np.asarray(normal.sample(20_000, KEY))
        check_distribution_function(normal.cdf, jnp.asarray(value), draws)


def test_what_has_none_says_so():
    with pytest.raises(UnsupportedMoments, match="distribution function of a VonMises"):
        # as arguments: JAX keeps the precision of constants for arrays that others take in singles
        jax.eval_shape(lambda *moments: prediction("VonMises", *moments).cdf(0.5), MEAN, VARIANCE)
    with pytest.raises(UnsupportedMoments, match="no order"):
        Prediction("y", dist.Categorical(probs=jnp.array([0.2, 0.8]))).cdf(0.0)
