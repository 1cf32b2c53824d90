"""Closed-form predictions against samples of the same posterior."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import Predictive

from moment_calculus.predictions.moments import Moments
from numpyro_moments import (
    DeterministicELBO,
    DVIGuide,
    Prediction,
    UnsupportedMoments,
    predict,
    predictive_moments,
)
from numpyro_moments.likelihoods.expected import PREDICTIVES
from numpyro_moments.sites.traces import bind
from tests.checks.jaxprs import by_numpy
from tests.numpyro import models
from tests.oracles.numpyro_samples import perturbed

SAMPLES = 4000
X, Y = (jnp.asarray(array) for array in models.data())


def close(actual, expected, **tolerance):
    np.testing.assert_allclose(actual, expected, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def weights():
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


def prepared(model, *args):
    """A guide with parameters nowhere special."""
    guide = DVIGuide(model)
    return guide, perturbed(guide, *args, spread=0.1)


def test_moments_and_density_match_samples():
    """Also traced; and the density of a heteroscedastic model is one."""
    model = models.heteroscedastic
    guide, params = prepared(model, X, Y)
    grid = jnp.linspace(-60, 60, 1_201)[:, None]

    @by_numpy
    def predicted(params, x):
        site = predict(model, guide, params, x)["obs"]
        parts = site.mean, site.epistemic_variance, site.aleatoric_variance, site.variance
        return *parts, jnp.exp(site.log_prob(grid))

    parts = predicted(params, X)
    mean, epistemic, aleatoric, variance, density = map(np.asarray, parts)
    host = Predictive(model, guide=guide, params=params, num_samples=SAMPLES)
    samples = np.asarray(by_numpy(lambda key: host(key, X)["obs"])(jax.random.key(1)))
    error = samples.std(0) / math.sqrt(SAMPLES)
    assert (abs(mean - samples.mean(0)) < 5 * error).all()
    close(variance, samples.var(0), rtol=0.15)
    close(variance, epistemic + aleatoric)
    assert (epistemic > 0).all()
    assert (aleatoric > 0).all()
    close(density.sum(0) * 0.1, np.ones(len(X)), atol=2e-3)


def test_log_density_is_exact_for_linear_regression():
    guide, params = prepared(models.linear_regression, X, Y)
    prediction = predict(models.linear_regression, guide, params, X)["obs"]
    assert isinstance(prediction, Prediction)
    variance = X**2 @ params["w_auto_scale"] ** 2 + params["b_auto_scale"] ** 2 + 0.3**2
    mean = X @ params["w_auto_loc"] + params["b_auto_loc"]
    close(prediction.mean, mean)
    close(prediction.variance, variance)
    close(prediction.log_prob(Y), dist.Normal(mean, jnp.sqrt(variance)).log_prob(Y))
    diagonal = predict(models.linear_regression, guide, params, X, covariance="diagonal")["obs"]
    close(diagonal.variance, variance)
    assert predict(models.linear_regression, guide, params, X[:3])["obs"].mean.shape == (3,)


def test_every_site_that_is_not_latent():
    """Several observable sites, a deterministic one, and a factor, of which nothing is known."""

    def model(x, y=None):
        w = weights()
        mean = numpyro.deterministic("mean", x @ w)
        numpyro.factor("penalty", -jnp.sum(w**2))
        with numpyro.plate("data", len(x)):
            numpyro.sample("first", dist.Normal(mean, 0.5), obs=y)
            numpyro.sample("second", dist.Normal(2 * mean, 0.5), obs=y)

    guide, params = prepared(model, X, Y)
    for arguments in ((X,), (X, Y)):
        found = predict(model, guide, params, *arguments)
        assert set(found) == {"mean", "first", "second"}
        assert isinstance(found["mean"], Moments)
        close(found["mean"].mean, found["first"].mean)
        close(found["mean"].variance, found["first"].epistemic_variance)
        close(found["second"].mean, 2 * found["first"].mean)
        close(found["second"].epistemic_variance, 4 * found["first"].epistemic_variance)


def test_probabilities_of_classes_match_samples():
    labels = jnp.asarray(models.classes(np.asarray(Y)))
    guide, params = prepared(models.classifier, X, labels)

    @by_numpy
    def predicted(params):
        site = predict(models.classifier, guide, params, X)["obs"]
        return site.mean, site.variance, site.epistemic_variance, site.log_prob(labels)

    predicted_mean, variance, epistemic, log_prob = predicted(params)

    @by_numpy
    @jax.vmap
    def probabilities(key):
        draws = guide.sample_posterior(key, params)
        conditioned = handlers.condition(models.classifier, draws)
        return handlers.trace(handlers.seed(conditioned, key)).get_trace(X)["obs"]["fn"].probs

    draws = np.asarray(probabilities(jax.random.split(jax.random.key(2), SAMPLES)))
    mean = draws.mean(0)
    close(predicted_mean.sum(-1), np.ones(len(X)))
    close(predicted_mean, mean, atol=0.03)
    close(variance, mean * (1 - mean), atol=0.03)
    close(epistemic, draws.var(0), atol=0.04)
    chosen = np.take_along_axis(np.asarray(predicted_mean), np.asarray(labels)[:, None], -1)[:, 0]
    close(log_prob, np.log(chosen))


def test_sites_of_local_latents_and_of_new_plates():
    """A subsampled plate is predicted in the size that the model asks for."""

    def model(x, y=None, size=None):
        w = weights()
        with numpyro.plate("data", len(x), subsample_size=size) as index:
            numpyro.sample(
                "obs", dist.Normal(x[index] @ w, 0.5), obs=None if y is None else y[index]
            )

    guide = DVIGuide(model)
    params = perturbed(guide, X, Y, 5)
    assert predict(model, guide, params, X, size=5)["obs"].mean.shape == (5,)
    assert predict(model, guide, params, X)["obs"].mean.shape == (len(X),)


def test_constants_of_numpy_as_cut_points_under_jit():
    def ordinal(x, y=None):
        fn = dist.OrderedLogistic(x @ weights(), np.array([-0.5, 0.6]))
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", fn, obs=y)

    guide, params = prepared(ordinal, X, jnp.zeros(len(X), int))

    def probabilities(params, x):
        return predict(ordinal, guide, params, x)["obs"].probs

    found = by_numpy(probabilities)(params, X)
    close(found.sum(-1), np.ones(len(X)))
    close(found, probabilities(params, X))


def student(x, y=None):
    shift = x * weights()
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.MultivariateStudentT(4.0, shift, jnp.eye(3)), obs=y)


def test_no_predictive_moments_names_the_candidates():
    guide, params = prepared(student, X, X)
    candidates = r"'obs'.*MultivariateStudentT.*Categorical.*, .*Normal"
    with pytest.raises(UnsupportedMoments, match=candidates) as refusal:
        predict(student, guide, params, X)
    assert "@numpyro_moments.predictive_moments" in str(refusal.value)


def test_registered_predictive_moments_serve():
    class Shifted(dist.MultivariateNormal):
        """A distribution of a user's own."""

    @predictive_moments(Shifted)
    def shifted(fn):
        mean = fn.loc.gaussian().mean
        return mean + 1, 2 * jnp.ones_like(mean), 3 * jnp.ones_like(mean), lambda value: value

    def model(x, y=None):
        with numpyro.plate("data", len(x)):
            numpyro.sample("obs", Shifted(x * weights(), jnp.eye(3)), obs=y)

    guide, params = prepared(model, X, X)
    try:
        prediction = predict(model, guide, params, X)["obs"]
    finally:
        PREDICTIVES.pop(Shifted)
    close(prediction.mean, X * params["w_auto_loc"] + 1)
    close(prediction.variance, jnp.full((len(X), 3), 5.0))


@pytest.mark.parametrize("name", ["Gamma", "Exponential"])
def test_a_confined_parameter_that_was_matched_by_a_gaussian_is_refused(name):
    """Its quadrature would go through negative rates, where 1/rate is any number."""
    make = {"Gamma": lambda rate: dist.Gamma(2.0, rate), "Exponential": dist.Exponential}[name]

    def model(y=None):
        a, b = (numpyro.sample(site, dist.LogNormal(0.0, 1.0)) for site in "ab")
        with numpyro.plate("data", 3):
            numpyro.sample("obs", make(jnp.broadcast_to(a * (1.0 + b), (3,))), obs=y)

    guide = DVIGuide(init_scale=0.5)
    bind(guide, model)
    params = perturbed(guide, jnp.ones(3))
    loss = DeterministicELBO().loss
    with pytest.raises(UnsupportedMoments, match=r"Gaussian|sqrt|log of"):
        jax.eval_shape(lambda: loss(jax.random.key(0), params, model, guide, jnp.ones(3)))
    with pytest.raises(UnsupportedMoments, match="is a Gaussian value"):
        jax.eval_shape(lambda: predict(model, guide, params)["obs"].mean)
