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
    DVIGuide,
    Prediction,
    UnsupportedMoments,
    predict,
    predictive_moments,
)
from numpyro_moments.likelihoods import PREDICTIVES
from tests.checks.jaxprs import by_numpy
from tests.checks.predictions import (
    LEVELS,
    check_draws,
    check_frequencies,
    check_levels,
    check_smallest,
)
from tests.numpyro import models
from tests.numpyro.likelihoods.cases import CASES, CUTS, MEAN, VARIANCE, distribution, latent
from tests.numpyro.one_program import evaluated
from tests.oracles.numpyro_samples import perturbed

DRAWS, KEY = 20_000, jax.random.key(0)
# One of every way to a quantile; the mathematics is that of the other host's tests.
CONTINUOUS = ["LogNormal, scale", "Cauchy", "truncated Normal"]
DISCRETE = ["Poisson, exp", "Bernoulli, probit"]

pytestmark = pytest.mark.usefixtures("double_precision_in_jax")


def points():
    """Points of f with weights, [points, 3] and [points, 1]."""
    z, weights = np.polynomial.hermite_e.hermegauss(150)
    return MEAN + np.sqrt(VARIANCE) * z[:, None], (weights / weights.sum())[:, None]


def prediction(name, mean=MEAN, variance=VARIANCE):
    return Prediction("y", distribution(CASES[name][0], latent("f", mean, variance)))


def quantiles_and_draws(name):
    """By one program."""

    def both(mean, variance):
        found = prediction(name, mean, variance)
        return found.quantile(LEVELS), found.sample(DRAWS, KEY)

    return map(np.asarray, evaluated(both, MEAN, VARIANCE))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_quantiles_and_draws_of_continuous_distributions(name):
    quantiles, draws = quantiles_and_draws(name)
    f, weights = points()
    cumulative = by_numpy(lambda f, value: CASES[name][0](f).cdf(value))
    mixed = [np.nansum(weights * cumulative(f, value), axis=0) for value in quantiles]
    check_levels(np.stack(mixed))
    check_draws(draws, quantiles)


@pytest.mark.parametrize("name", DISCRETE)
def test_quantiles_and_draws_of_counts(name):
    quantiles, draws = quantiles_and_draws(name)
    f, weights = points()
    last = getattr(CASES[name][0](f).support, "upper_bound", 1 if "Bernoulli" in name else 80)
    counts = np.arange(int(np.max(last)) + 1)
    log_prob = by_numpy(lambda f, k: CASES[name][0](f).log_prob(k))
    probabilities = np.stack([(weights * np.exp(log_prob(f, k))).sum(0) for k in counts])
    check_smallest(quantiles, probabilities.cumsum(0))
    assert draws.shape == (DRAWS, 3)
    check_frequencies(draws, probabilities[:6])


def test_a_gaussian_prediction_is_in_closed_form():
    def program(mean):
        fn = distribution(lambda f: dist.Normal(f, 0.5), latent("f", mean))
        found = Prediction("y", fn)
        several = found.quantile([0.1, 0.5]), found.sample(7, key=KEY)
        return found.quantile(0.3), found.interval(0.9), several

    quantile, (lower, upper), (several, draws) = evaluated(program, MEAN)
    exact = scipy.stats.norm(MEAN, np.sqrt(VARIANCE + 0.25))
    np.testing.assert_allclose(quantile, exact.ppf(0.3), rtol=1e-12)
    np.testing.assert_allclose(lower, exact.ppf(0.05), rtol=1e-12)
    np.testing.assert_allclose(upper, exact.ppf(0.95), rtol=1e-12)
    assert several.shape == (2, 3)
    assert draws.shape == (7, 3)


def test_expansions_events_and_certain_distributions():
    def shapes(mean):
        fn = distribution(lambda f: dist.Normal(f, 0.5), latent("f", mean))
        wide = Prediction("y", fn.expand([2, 3]).to_event(1))
        return wide.sample(5, KEY), wide.quantile(0.1), wide.quantile([0.1, 0.5])

    found = [part.shape for part in jax.eval_shape(shapes, MEAN)]
    assert found == [(5, 2, 3), (2, 3), (2, 2, 3)]

    def certain(rate):
        counts = Prediction("y", dist.Poisson(rate).expand([2]))
        real = Prediction("y", dist.StudentT(4.0, 0.0, 2.0))
        return counts.quantile([0.5, 0.99]), counts.sample(5, KEY), real.quantile(0.9)

    quantiles, draws, real = evaluated(certain, 3.0)
    assert quantiles.tolist() == [[3.0, 3.0], [8.0, 8.0]]
    assert draws.shape == (5, 2)
    np.testing.assert_allclose(real, scipy.stats.t(4.0, 0.0, 2.0).ppf(0.9))


def test_components_of_a_vector():
    mean, root = np.array([0.3, -1.0]), np.array([[1.0, 0.0], [0.5, 0.2]])

    def program(mean, root):
        found = Prediction("y", dist.MultivariateNormal(mean, scale_tril=root).expand([4]))
        return found.quantile(0.2), found.sample(DRAWS, KEY)

    quantile, draws = map(np.asarray, evaluated(program, mean, root))
    exact = scipy.stats.norm(mean, np.sqrt(np.diag(root @ root.T))).ppf(0.2)
    np.testing.assert_allclose(quantile, np.tile(exact, (4, 1)))
    assert draws.shape == (DRAWS, 4, 2)
    np.testing.assert_allclose(np.cov(draws[:, 1].T), root @ root.T, atol=0.05)


def test_probabilities_of_classes():
    f, weights = points()

    def program(f, *moments):
        names = "Bernoulli, logits", "Binomial, logits", "OrderedLogistic"
        found = [prediction(name, *moments) for name in names]
        drawn = found[-1].quantile(LEVELS), found[-1].sample(DRAWS, KEY)
        certain = jax.nn.sigmoid(f), dist.OrderedLogistic(f, CUTS).probs
        return [part.probs for part in found], drawn, certain

    (binary, several, classes), (quantiles, draws), certain = jax.tree.map(
        np.asarray, evaluated(program, f, MEAN, VARIANCE)
    )
    probs = (weights * certain[0]).sum(0)
    np.testing.assert_allclose(binary, probs, rtol=1e-8)
    np.testing.assert_allclose(several, probs, rtol=1e-8)
    expected = (weights[..., None] * certain[1]).sum(0)
    np.testing.assert_allclose(classes, expected, rtol=1e-6)
    check_smallest(quantiles, expected.cumsum(-1).T)
    check_frequencies(draws, expected.T)


def test_what_has_no_quantiles_or_probabilities_says_so():
    with pytest.raises(
        UnsupportedMoments, match=r"'y': no predictive quantiles of a VonMises"
    ) as e:
        jax.eval_shape(lambda: prediction("VonMises").quantile(0.5))
    assert "sample" in e.value.remedy
    classes = Prediction("y", dist.Categorical(probs=jnp.array([0.2, 0.8])))
    with pytest.raises(UnsupportedMoments, match="no order") as e:
        classes.quantile(0.5)
    assert "probs" in e.value.remedy
    for name in ("Poisson, exp", "Normal, nonlinear"):
        with pytest.raises(UnsupportedMoments, match=r"a (Poisson|Normal) has no classes"):
            jax.eval_shape(lambda name=name: prediction(name).probs)
    normal = Prediction("y", distribution(lambda f: dist.Normal(f, 0.5), latent()))
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
    """Traced, in single precision."""
    x, y = (jnp.asarray(array, jnp.float32) for array in models.data())
    with jax.enable_x64(False):
        guide = DVIGuide(models.heteroscedastic)
        params = perturbed(guide, x, y, spread=0.1)

        @by_numpy
        def predicted(params, x):
            found = predict(models.heteroscedastic, guide, params, x)["obs"]
            return *found.interval(0.9), found.sample(4000, KEY)

        lower, upper, own = map(np.asarray, predicted(params, x))
        host = Predictive(models.heteroscedastic, guide=guide, params=params, num_samples=4000)
        samples = np.asarray(by_numpy(lambda key: host(key, x)["obs"])(jax.random.key(1)))
    assert lower.dtype == np.float32
    inside = ((samples > lower) & (samples < upper)).mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=0.04)
    np.testing.assert_allclose(inside.mean(), 0.9, atol=0.01)
    inside = ((own > lower) & (own < upper)).mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=5 * np.sqrt(0.09 / 4000))
