"""Predictions and moments by draws and by means, beside the closed forms."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.checks.jaxprs import by_numpy
from tests.propagation.oracle import placed
from tests.response.models import doubles, mean_field

DRAWS = 2000
rng = np.random.default_rng(0)
X = rng.normal(size=(5, 3))
WEIGHT = rng.normal(size=3), np.array([0.5, 0.3, 0.8])


def plain(host, f, y):
    return host.observe(f, host.dist.Normal(f, 0.6), y)


def classes(host, f, y):
    logits = host.array([0.4, -0.2, 0.0]) * f[:, None]
    return host.observe(f, host.dist.Categorical(logits=logits), y)


def repeated(host, f, y):
    """A plate of which the parameters know nothing, and an event."""
    with host.language.plate("repeats", 2, dim=-1):
        fn = host.dist.Normal(f, host.array(0.6)).to_event(1)
        return host.language.sample("obs", fn, obs=y)


def positive(host, f, y):
    return host.observe(f, host.dist.LogNormal(0.3 * f, 0.4), y)


LIKELIHOODS = {
    "normal": (plain, np.zeros(5)),
    "classes": (classes, np.array([0, 1, 2, 0, 1])),
    "an event in a plate": (repeated, np.zeros((2, 5))),
    "log-normal": (positive, np.ones(5)),
}


def model_of(host, likelihood):
    def model(x, y=None):
        f = host.language.deterministic("f", x @ host.weight())
        likelihood(host, f, y)

    return model


@dataclass
class Found:
    """What is predicted of the observations and of their location, in NumPy."""

    mean: np.ndarray
    epistemic_variance: np.ndarray
    log_prob: np.ndarray
    location: np.ndarray
    location_variance: np.ndarray

    @classmethod
    def of(cls, predicted, y):
        obs, f = predicted["obs"], predicted["f"]
        return cls(obs.mean, obs.epistemic_variance, obs.log_prob(y), f.mean, f.variance)


def predictions(host, name, propagation):
    """What is predicted; JAX compiles it as one program."""
    package, options = host.package, {"propagation": propagation, "num_particles": DRAWS}
    guide, params = package.DVIGuide(), mean_field(host, weight=WEIGHT)
    likelihood, y = LIKELIHOODS[name]
    model, x, y = model_of(host, likelihood), host.array(X), host.array(y)
    given = placed(host, model, guide, params, x, y)
    if host.name == "numpyro":

        def found(x, y):
            options["rng_key"] = jax.random.key(1)
            predicted = package.predict(model, guide, *given, x, **options)
            return vars(Found.of(predicted, y))

        return Found(**jax.tree.map(np.asarray, by_numpy(found)(x, y)))
    with torch.no_grad():
        found = Found.of(package.predict(model, guide, x, **options), y)
    return Found(**jax.tree.map(np.asarray, vars(found)))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_predict_what_the_closed_form_does(host, name):
    with doubles(host):
        exact, drawn = (predictions(host, name, how) for how in ("analytic", "sampled"))
    assert exact.mean.shape == drawn.mean.shape
    error = np.abs(exact.mean - drawn.mean)
    assert (error < 4.5 * np.sqrt(exact.epistemic_variance / DRAWS) + 2e-3).all()
    variances = exact.epistemic_variance, drawn.epistemic_variance
    np.testing.assert_allclose(*variances, rtol=0.15, atol=2e-3)
    if name != "an event in a plate":  # the elements of an event share a draw of the weights
        np.testing.assert_allclose(exact.log_prob, drawn.log_prob, atol=0.12)
    np.testing.assert_allclose(exact.location_variance, drawn.location_variance, rtol=0.15)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_means_know_no_uncertainty(host, name):
    with doubles(host):
        found = predictions(host, name, "mean")
    assert not found.epistemic_variance.any()
    np.testing.assert_allclose(found.location, X @ WEIGHT[0])
    assert not found.location_variance.any()


def moments(host, propagation, covariance, **options):
    array, relu = (
        (jnp.asarray, jax.nn.relu) if host.name == "numpyro" else (torch.tensor, torch.relu)
    )
    matrix = np.array([[1.0, 0.6], [0.6, 1.0]])
    given = host.package.Moments(array([0.5, -0.5]), covariance=array(matrix))
    options |= {"propagation": propagation, "covariance": covariance}
    if host.name == "numpyro":
        options.setdefault("rng_key", jax.random.key(0))
        return by_numpy(partial(host.package.propagate, relu, **options))(given)
    return host.package.propagate(relu, given, **options)


def test_a_function_of_draws_has_the_moments_of_the_closed_form(host):
    with doubles(host):
        exact, drawn = (
            moments(host, how, "full", num_particles=20_000) for how in ("analytic", "sampled")
        )
        np.testing.assert_allclose(exact.mean, drawn.mean, atol=0.02)
        np.testing.assert_allclose(exact.covariance, drawn.covariance, atol=0.03)
        assert moments(host, "sampled", "diagonal").covariance is None
        mean = moments(host, "mean", "full")
        np.testing.assert_allclose(mean.mean, [0.5, 0.0])
        assert not np.asarray(mean.variance).any()


def test_what_is_missing_is_named(host):
    with doubles(host):
        with pytest.raises(ValueError, match="analytic, sampled, mean"):
            moments(host, "monte-carlo", "full")
        with pytest.raises(ValueError, match="two draws"):
            moments(host, "sampled", "full", num_particles=1)
        if host.name == "numpyro":
            with pytest.raises(ValueError, match="rng_key"):
                moments(host, "sampled", "full", rng_key=None)
