"""Quantiles, intervals, class probabilities and draws of predictions, against exact mixtures."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer import Predictive

from numpyro_moments import (
    DeterministicELBO,
    DVIGuide,
    Prediction,
    UnsupportedMoments,
    predict,
    predictive_moments,
)
from numpyro_moments.likelihoods import PREDICTIVES
from tests.checks.marks import slow
from tests.checks.predictions import (
    LEVELS,
    check_draws,
    check_frequencies,
    check_levels,
    check_smallest,
)
from tests.numpyro import models
from tests.numpyro.likelihoods.cases import CASES, CUTS, MEAN, VARIANCE, distribution, latent
from tests.oracles.numpyro_samples import train

DRAWS, KEY = 20_000, jax.random.key(0)
# What takes seconds to compile is slow: the mathematics is that of the other host's tests.
CONTINUOUS = ["LogNormal, scale", "Cauchy", slow("Normal, nonlinear"), slow("Gamma, log link")]
CONTINUOUS += [slow("StudentT, both"), slow("truncated Normal")]
DISCRETE = ["Poisson, exp", slow("Bernoulli, probit"), slow("Binomial, logits")]
DISCRETE += [slow("ZeroInflatedPoisson, both")]

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def points():
    """Points of f with weights, [points, 3] and [points, 1]."""
    z, weights = np.polynomial.hermite_e.hermegauss(150)
    return MEAN + np.sqrt(VARIANCE) * z[:, None], (weights / weights.sum())[:, None]


def prediction(name):
    return Prediction("y", distribution(CASES[name][0], latent()))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_and_draws_of_continuous_distributions(name):
    found = prediction(name)
    quantiles = np.asarray(found.quantile(LEVELS))
    f, weights = points()
    cumulative = jax.jit(CASES[name][0](f).cdf)
    mixed = [np.nansum(weights * cumulative(value), axis=0) for value in quantiles]
    check_levels(np.stack(mixed))
    check_draws(np.asarray(found.sample(DRAWS, KEY)), quantiles)


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_and_draws_of_counts(name):
    found = prediction(name)
    f, weights = points()
    certain = CASES[name][0](f)
    last = getattr(certain.support, "upper_bound", 1 if "Bernoulli" in name else 80)
    counts = np.arange(int(np.max(last)) + 1)
    probabilities = np.stack([(weights * np.exp(certain.log_prob(k))).sum(0) for k in counts])
    check_smallest(np.asarray(found.quantile(LEVELS)), probabilities.cumsum(0))
    draws = np.asarray(found.sample(DRAWS, KEY))
    assert draws.shape == (DRAWS, 3)
    check_frequencies(draws, probabilities[:6])


def test_a_gaussian_prediction_is_in_closed_form():
    found = Prediction("y", distribution(lambda f: dist.Normal(f, 0.5), latent()))
    exact = scipy.stats.norm(MEAN, np.sqrt(VARIANCE + 0.25))
    np.testing.assert_allclose(found.quantile(0.3), exact.ppf(0.3), rtol=1e-12)
    lower, upper = found.interval(0.9)
    np.testing.assert_allclose(lower, exact.ppf(0.05), rtol=1e-12)
    np.testing.assert_allclose(upper, exact.ppf(0.95), rtol=1e-12)
    assert found.quantile([0.1, 0.5]).shape == (2, 3)
    assert found.sample(7, key=KEY).shape == (7, 3)


def test_expansions_events_and_certain_distributions():
    fn = distribution(lambda f: dist.Normal(f, 0.5), latent())
    wide = Prediction("y", fn.expand([2, 3]).to_event(1))
    assert wide.sample(5, KEY).shape == (5, 2, 3)
    assert wide.quantile(0.1).shape == (2, 3)
    assert wide.quantile([0.1, 0.5]).shape == (2, 2, 3)
    certain = Prediction("y", dist.Poisson(3.0).expand([2]))
    assert certain.quantile([0.5, 0.99]).tolist() == [[3.0, 3.0], [8.0, 8.0]]
    assert certain.sample(5, KEY).shape == (5, 2)
    certain = Prediction("y", dist.StudentT(4.0, 0.0, 2.0))
    np.testing.assert_allclose(certain.quantile(0.9), scipy.stats.t(4.0, 0.0, 2.0).ppf(0.9))


def test_components_of_a_vector():
    mean, root = jnp.array([0.3, -1.0]), jnp.array([[1.0, 0.0], [0.5, 0.2]])
    found = Prediction("y", dist.MultivariateNormal(mean, scale_tril=root).expand([4]))
    exact = scipy.stats.norm(mean, np.sqrt(np.diag(root @ root.T))).ppf(0.2)
    np.testing.assert_allclose(found.quantile(0.2), np.tile(exact, (4, 1)))
    draws = np.asarray(found.sample(DRAWS, KEY))
    assert draws.shape == (DRAWS, 4, 2)
    np.testing.assert_allclose(np.cov(draws[:, 1].T), root @ root.T, atol=0.05)


def test_probabilities_of_classes():
    f, weights = points()
    probs = (weights * np.asarray(jax.nn.sigmoid(f))).sum(0)
    np.testing.assert_allclose(prediction("Bernoulli, logits").probs, probs, rtol=1e-8)
    np.testing.assert_allclose(prediction("Binomial, logits").probs, probs, rtol=1e-8)
    found = prediction("OrderedLogistic")
    expected = (weights[..., None] * np.asarray(dist.OrderedLogistic(f, CUTS).probs)).sum(0)
    np.testing.assert_allclose(found.probs, expected, rtol=1e-6)
    check_smallest(np.asarray(found.quantile(LEVELS)), expected.cumsum(-1).T)
    check_frequencies(np.asarray(found.sample(DRAWS, KEY)), expected.T)


def test_what_has_no_quantiles_or_probabilities_says_so():
    with pytest.raises(
        UnsupportedMoments, match=r"'y': no predictive quantiles of a VonMises"
    ) as e:
        prediction("VonMises").quantile(0.5)
    assert "sample" in e.value.remedy
    classes = Prediction("y", dist.Categorical(probs=jnp.array([0.2, 0.8])))
    with pytest.raises(UnsupportedMoments, match="no order") as e:
        classes.quantile(0.5)
    assert "probs" in e.value.remedy
    for name in ("Poisson, exp", "Normal, nonlinear"):
        with pytest.raises(UnsupportedMoments, match=r"a (Poisson|Normal) has no classes"):
            _ = prediction(name).probs
    normal = prediction("Normal, nonlinear")
    for level in (0.0, 1.0, [0.5, 2.0], np.nan):
        with pytest.raises(ValueError, match="between 0 and 1"):
            normal.quantile(level)
    with pytest.raises(ValueError, match="between 0 and 1"):
        normal.interval(1.0)
    for count in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            normal.sample(count, KEY)


def test_rules_of_a_users_own_may_give_a_distribution():
    class Shifted(dist.MultivariateNormal):
        """A distribution of a user's own."""

    fn = distribution(lambda f: Shifted(f, jnp.eye(3)), latent(event_dim=1))
    parts = jnp.ones(3), jnp.zeros(3), jnp.ones(3)
    try:
        predictive_moments(Shifted)(lambda fn: (*parts, lambda value: value))
        found = Prediction("y", fn)
        for refused in (lambda: found.quantile(0.5), lambda: found.sample(2, KEY)):
            with pytest.raises(UnsupportedMoments, match="Shifted"):
                refused()
        normal = dist.MultivariateNormal(parts[0], jnp.eye(3))
        predictive_moments(Shifted)(lambda fn: (*parts, normal))
        found = Prediction("y", fn)
        assert found.sample(4, KEY).shape == (4, 3)
        assert found.log_prob(jnp.ones(3)) == normal.log_prob(jnp.ones(3))
    finally:
        PREDICTIVES.pop(Shifted)


@pytest.mark.parametrize("df", [0.7, 1.0, 2.0, 3.0])
def test_moments_that_do_not_exist_are_not_made_up(df):
    found = Prediction("y", distribution(lambda f: dist.StudentT(df, f, 0.5), latent()))
    assert np.isnan(found.mean).all() == (df <= 1)
    assert np.isinf(found.aleatoric_variance).all() == (df <= 2)
    np.testing.assert_allclose(found.epistemic_variance, VARIANCE, rtol=1e-6)
    assert np.isinf(found.variance).all() == (df <= 2)
    cauchy = Prediction("y", distribution(lambda f: dist.Cauchy(f, 0.5), latent()))
    assert np.isnan(cauchy.mean).all()
    assert np.isinf(cauchy.variance).all()


def test_intervals_of_a_network_match_draws_of_the_host():
    """Under jit, in single precision."""
    x, y = (jnp.asarray(array, jnp.float32) for array in models.data())
    with jax.enable_x64(False):
        guide = DVIGuide()
        _, params = train(models.heteroscedastic, guide, DeterministicELBO(), x, y, steps=80)

        @jax.jit
        def predicted(params, x):
            found = predict(models.heteroscedastic, guide, params, x)["obs"]
            return *found.interval(0.9), found.sample(4000, KEY)

        lower, upper, own = map(np.asarray, predicted(params, x))
        host = Predictive(models.heteroscedastic, guide=guide, params=params, num_samples=4000)
        samples = np.asarray(jax.jit(lambda key: host(key, x)["obs"])(jax.random.key(1)))
    assert lower.dtype == np.float32
    inside = ((samples > lower) & (samples < upper)).mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=0.04)
    np.testing.assert_allclose(inside.mean(), 0.9, atol=0.01)
    inside = ((own > lower) & (own < upper)).mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=5 * np.sqrt(0.09 / 4000))
