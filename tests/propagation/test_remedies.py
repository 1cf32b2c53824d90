"""Refusals of random values: the site that is drawn helps, and the line is the user's."""

import copy
import re
import statistics
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from tests.fitting.models import fresh

PARAMS = {
    f"{site}_auto_{part}": jnp.full(4, value)
    for site in "ab"
    for part, value in (("loc", 0.3), ("scale", 0.1))
}
FUNCTIONS = {
    "pyro": SimpleNamespace(
        ruleless=torch.special.i0,
        softplus=torch.nn.functional.softplus,
        logsumexp=torch.logsumexp,
        rounded=lambda a: torch.div(a, 2.0, rounding_mode="floor"),
    ),
    "numpyro": SimpleNamespace(
        ruleless=partial(jax.scipy.special.gammainc, 2.0),
        softplus=jax.nn.softplus,
        logsumexp=jax.nn.logsumexp,
        rounded=lambda a: a.astype(int) * 1.0,
    ),
}


def regression(likelihood):
    """Two Gaussian sites, observed through a function of the host and of them."""

    def of_host(host):
        def model():
            normal = host.dist.Normal(host.np.zeros(4), 1.0).to_event(1)
            a, b = (host.language.sample(site, normal) for site in "ab")
            with host.language.plate("data", 4):
                fn = likelihood(host, FUNCTIONS[host.name], a, b)
                host.language.sample("obs", fn, obs=host.np.ones(4))

        return model

    return of_host


def normal(step):
    return regression(lambda h, f, a, b: h.dist.Normal(step(h.np, f, a, b), 1.0))


def twice_in_the_likelihood(h, f, a, b):
    scale = h.np.exp(f.logsumexp(a * b, -1)) * h.np.ones(4)
    return h.dist.Normal(a * f.logsumexp(a, -1), scale)


# Program, words of the cause.
DRAWN = {
    "no rule": (normal(lambda n, f, a, b: f.ruleless(n.exp(a))), "no moment rule"),
    "division": (normal(lambda n, f, a, b: b / a), "negative values|1/x"),
    "index": (normal(lambda n, f, a, b: n.linspace(0, 1, 4)[a.argsort()]), "in order|sort|index"),
    "choice": (normal(lambda n, f, a, b: n.where(a > n.exp(b), a, b)), "comparison|choice|branch"),
    "power of both": (normal(lambda n, f, a, b: a**b), "random power"),
    "log of a difference": (
        normal(lambda n, f, a, b: n.log(n.exp(a) - n.exp(b))),
        "mean and variance only",
    ),
    "log of a Gaussian": (
        normal(lambda n, f, a, b: n.log(a + b)),
        "log of a Gaussian is not defined",
    ),
    "root of a product": (
        normal(lambda n, f, a, b: n.sqrt(f.softplus(a) * n.tanh(b))),
        "product of functions of different Gaussians",
    ),
    "rounding": (
        normal(lambda n, f, a, b: f.rounded(a)),
        "rounding_mode|conversion of a random value",
    ),
    "Gaussian scale": (regression(lambda h, f, a, b: h.dist.Normal(a, 1 + b)), "scale is a Gauss"),
    "Gaussian probability": (
        regression(lambda h, f, a, b: h.dist.Bernoulli(probs=0.5 + 0.01 * a)),
        "probability is a Gaussian",
    ),
    "Gaussian rate": (regression(lambda h, f, a, b: h.dist.Exponential(1 + b)), "Gaussian"),
    "location and scale": (regression(twice_in_the_likelihood), "covariance is not known"),
    "attention": (normal(lambda n, f, a, b: n.tanh(a[:, None] @ b[None]) @ a), "dependent values"),
}
ONLY = {
    "numpyro": {
        "sort": (normal(lambda n, f, a, b: n.sort(a)), "joint moments of 'sort'"),
        "while": (
            normal(lambda n, f, a, b: jax.lax.while_loop(lambda v: v.sum() < 3, n.exp, a)),
            "while loop",
        ),
    },
    "pyro": {
        "rows": (
            normal(lambda n, f, a, b: (n.tanh(a[:, None] * b) * a).sum(-1)),
            "covariance is not known",
        ),
    },
}
KNOWN = {("location and scale", "full")}  # where nothing is refused
CASES = [(host, name) for host, rows in ONLY.items() for name in (*DRAWN, *rows)]
NEGATIVE = {("pyro", "Gaussian rate"), ("pyro", "Gaussian scale")}  # as drawn


def evaluated(host, model, **options):
    elbo, guide = host.package.DeterministicELBO(**options), host.package.DVIGuide(model)
    with host.language.validation_enabled(False):
        if host.name == "pyro":
            return elbo.loss(model, guide)
        return jax.eval_shape(lambda: elbo.loss(jax.random.key(0), PARAMS, model, guide))


def refused(host, model, **options):
    with pytest.raises(UnsupportedMoments) as raised:
        evaluated(host, model(host), **options)
    assert "test_remedies.py" in raised.value.location, raised.value
    return raised.value


@pytest.mark.parametrize(("host", "name"), CASES, indirect=["host"])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_drawing_the_sites_is_offered_and_the_line_is_the_users(host, name, covariance):
    if (name, covariance) in KNOWN:
        return
    model, cause = {**DRAWN, **ONLY[host.name]}[name]
    refusal = refused(host, model, covariance=covariance)
    assert re.search(cause, refusal.cause), refusal
    assert "sample_sites=" in refusal.remedy, refusal
    assert "propagation='sampled'" in refusal.remedy, refusal
    assert set(refusal.sites) <= {"a", "b"}
    if covariance == "diagonal":
        assert "covariance='diagonal'" not in refusal.remedy


@pytest.mark.parametrize(
    ("host", "name"), [case for case in CASES if case not in NEGATIVE], indirect=["host"]
)
def test_drawing_the_sites_helps(host, name):
    """No refusal names a site that is drawn."""
    model, _ = {**DRAWN, **ONLY[host.name]}[name]
    evaluated(host, model(host), sample_sites=["a", "b"])


@pytest.mark.parametrize(
    ("host", "name"), [case for case in CASES if case not in NEGATIVE], indirect=["host"]
)
def test_held_draws_are_offered_first_and_help(host, name):
    model, _ = {**DRAWN, **ONLY[host.name]}[name]
    if (name, "full") not in KNOWN:
        assert refused(host, model).remedy.startswith("integrate what has no rule by draws")
    evaluated(host, model(host), held_draws=8)


def test_held_draws_are_not_offered_where_they_do_not_help():
    branching = normal(lambda n, f, a, b: a if (a > 0).all() else b)
    assert "held" not in refused(fresh("pyro"), branching).remedy


def test_what_is_positive_is_not_to_be_made_positive(host):
    for name in ("log of a difference", "root of a product"):
        assert "make it positive" not in refused(host, DRAWN[name][0]).remedy
    assert "make it positive" in refused(host, DRAWN["log of a Gaussian"][0]).remedy


STANDARD = {
    "numpyro": [lambda a: jax.scipy.special.digamma(copy.deepcopy(a))],
    "pyro": [copy.deepcopy, statistics.fmean],
}


def test_lines_of_the_standard_library_are_not_the_users(host):
    for step in STANDARD[host.name]:
        refused(host, normal(lambda n, f, a, b, step=step: step(a)))


def test_lines_of_equinox_are_not_the_users():
    equinox = pytest.importorskip("equinox")
    norm = equinox.nn.Lambda(jax.scipy.special.digamma)
    refused(fresh("numpyro"), normal(lambda n, f, a, b: norm(a)))


def predicted(host, model):
    guide = host.package.DVIGuide(model)
    with host.language.validation_enabled(False):
        if host.name == "pyro":
            guide()
            return host.package.predict(model, guide)
        return jax.eval_shape(lambda: host.package.predict(model, guide, PARAMS)["obs"].mean)


def test_predictions_name_the_line_of_the_site(host):
    with pytest.raises(UnsupportedMoments) as raised:
        predicted(host, DRAWN["Gaussian rate"][0](host))
    assert raised.value.cause.startswith("site 'obs'")
    assert "test_remedies.py" in raised.value.location
