"""Refusals of random values: the site that is drawn helps, and the line is the user's."""

import copy
import re

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest

from numpyro_moments import DeterministicELBO, DVIGuide, UnsupportedMoments, predict

X = jnp.linspace(-1.0, 1.0, 12).reshape(4, 3)
Y = jnp.linspace(0.2, 0.8, 4)
PARAMS = {
    f"{site}_auto_{part}": jnp.full(4, value)
    for site in "ab"
    for part, value in (("loc", 0.3), ("scale", 0.1))
}


def regression(likelihood):
    """Two Gaussian sites, observed through a function of them."""

    def model(y=Y):
        a = numpyro.sample("a", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
        b = numpyro.sample("b", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
        with numpyro.plate("data", 4):
            numpyro.sample("obs", likelihood(a, b), obs=y)

    return model


def normal(step):
    return regression(lambda a, b: dist.Normal(step(a, b), 1.0))


# Program, words of the cause.
DRAWN = {
    "no rule": (
        normal(lambda a, b: jax.scipy.special.gammainc(2.0, jnp.exp(a))),
        "no moment rule",
    ),
    "division": (normal(lambda a, b: b / a), "negative values|1/x"),
    "sort": (normal(lambda a, b: jnp.sort(a)), "joint moments of 'sort'"),
    "index": (normal(lambda a, b: X[:, 0][a.argsort()]), "sort|index"),
    "choice": (normal(lambda a, b: jnp.where(a > jnp.exp(b), a, b)), "comparison|choice"),
    "power of both": (normal(lambda a, b: a**b), "random power"),
    "log of a difference": (
        normal(lambda a, b: jnp.log(jnp.exp(a) - jnp.exp(b))),
        "mean and variance only",
    ),
    "log of a Gaussian": (normal(lambda a, b: jnp.log(a + b)), "log of a Gaussian is not defined"),
    "root of a product": (
        normal(lambda a, b: jnp.sqrt(jax.nn.softplus(a) * jnp.tanh(b))),
        "product of functions of different Gaussians",
    ),
    "rounding": (normal(lambda a, b: a.astype(int) * 1.0), "conversion of a random value"),
    "while": (
        normal(lambda a, b: jax.lax.while_loop(lambda v: v.sum() < 3, lambda v: v + 1, a)),
        "while loop",
    ),
    "Gaussian scale": (regression(lambda a, b: dist.Normal(a, 1 + b)), "scale is a Gaussian"),
    "Gaussian probability": (
        regression(lambda a, b: dist.Bernoulli(probs=0.5 + 0.01 * a)),
        "probability is a Gaussian",
    ),
    "Gaussian rate": (regression(lambda a, b: dist.Exponential(1 + b)), "Gaussian"),
    "location and scale": (
        regression(
            lambda a, b: dist.Normal(
                a * jax.nn.logsumexp(a), jnp.exp(jax.nn.logsumexp(a * b)) * jnp.ones(4)
            )
        ),
        "covariance is not known",
    ),
    "attention": (normal(lambda a, b: jnp.tanh(a[:, None] @ b[None]) @ a), "dependent values"),
}
KNOWN = {("location and scale", "full")}  # where nothing is refused
CASES = [(name, kind) for name in DRAWN for kind in ("full", "diagonal")]
CASES = [case for case in CASES if case not in KNOWN]


def evaluated(model, **options):
    elbo, guide = DeterministicELBO(**options), DVIGuide(model)
    return jax.eval_shape(lambda: elbo.loss(jax.random.key(0), PARAMS, model, guide))


def refused(model, **options):
    with numpyro.validation_enabled(False), pytest.raises(UnsupportedMoments) as raised:
        evaluated(model, **options)
    return raised.value


@pytest.mark.parametrize(("name", "covariance"), CASES)
def test_drawing_the_sites_is_offered_and_the_line_is_the_users(name, covariance):
    model, cause = DRAWN[name]
    refusal = refused(model, covariance=covariance)
    assert re.search(cause, refusal.cause), refusal
    assert "sample_sites=" in refusal.remedy, refusal
    assert "propagation='sampled'" in refusal.remedy, refusal
    assert "test_remedies.py" in refusal.location, refusal
    assert set(refusal.sites) <= {"a", "b"}
    if covariance == "diagonal":
        assert "covariance='diagonal'" not in refusal.remedy


@pytest.mark.parametrize("name", DRAWN)
def test_drawing_the_sites_helps(name):
    """No refusal names a site that is drawn."""
    evaluated(DRAWN[name][0], sample_sites=["a", "b"])


def test_what_is_positive_is_not_to_be_made_positive():
    for name in ("log of a difference", "root of a product"):
        assert "make it positive" not in refused(DRAWN[name][0]).remedy
    assert "make it positive" in refused(DRAWN["log of a Gaussian"][0]).remedy


def test_predictions_name_the_line_of_the_site():
    model = regression(lambda a, b: dist.Exponential(1 + b))
    with pytest.raises(UnsupportedMoments) as raised:
        jax.eval_shape(lambda: predict(model, DVIGuide(model), PARAMS)["obs"].mean)
    assert raised.value.cause.startswith("site 'obs'")
    assert "test_remedies.py" in raised.value.location


def test_lines_of_the_standard_library_are_not_the_users():
    refusal = refused(normal(lambda a, b: jax.scipy.special.digamma(copy.deepcopy(a))))
    assert "test_remedies.py" in refusal.location, refusal


def test_lines_of_equinox_are_not_the_users():
    equinox = pytest.importorskip("equinox")
    norm = equinox.nn.Lambda(jax.scipy.special.digamma)
    refusal = refused(normal(lambda a, b: norm(a)))
    assert "test_remedies.py" in refusal.location, refusal
