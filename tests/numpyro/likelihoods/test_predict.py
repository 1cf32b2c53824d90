"""Closed-form predictions against samples of the same posterior."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from moment_calculus.predictions.moments import Moments
from numpyro_moments import (
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

X, Y = (jnp.asarray(array) for array in models.data())


def close(actual, expected, **tolerance):
    np.testing.assert_allclose(actual, expected, **{"rtol": 1e-5, "atol": 1e-6, **tolerance})


def weights():
    return numpyro.sample("w", dist.Normal(0.0, 1.0).expand([3]).to_event(1))


def prepared(model, *args):
    """A guide with parameters nowhere special."""
    guide = DVIGuide(model)
    return guide, perturbed(guide, *args, spread=0.1)


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


def test_sites_of_local_latents_and_of_new_plates():
    """All rows are predicted, in their order, whatever size of a subsample the model asks for."""

    def model(x, y=None, size=None):
        w = weights()
        with numpyro.plate("data", len(x), subsample_size=size) as index:
            numpyro.sample(
                "obs", dist.Normal(x[index] @ w, 0.5), obs=None if y is None else y[index]
            )

    guide = DVIGuide(model)
    params = perturbed(guide, X, Y, 5)
    whole, part = (predict(model, guide, params, X, size=size)["obs"].mean for size in (None, 5))
    assert whole.shape == (len(X),)
    close(part, whole)


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
    candidates = r"'obs'.*MultivariateStudentT.*Normal, .*Categorical"
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


def test_a_confined_parameter_that_was_matched_by_a_gaussian_is_refused():
    """Its quadrature would go through negative rates, where 1/rate is any number."""

    def model(y=None):
        a, b = (numpyro.sample(site, dist.LogNormal(0.0, 1.0)) for site in "ab")
        with numpyro.plate("data", 3):
            numpyro.sample("obs", dist.Gamma(2.0, jnp.broadcast_to(1.5 * a - b, (3,))), obs=y)

    guide = DVIGuide(init_scale=0.5)
    bind(guide, model)
    params = perturbed(guide, jnp.ones(3))
    with pytest.raises(UnsupportedMoments, match="is a Gaussian value"):
        jax.eval_shape(lambda: predict(model, guide, params)["obs"].mean)
