"""Likelihoods of rows whose random parameters are scalars: the same number in both frameworks."""

from __future__ import annotations

import jax
import numpy as np
import pyro
import pytest

from tests.checks.carried import in_numpyro
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import HOSTS, fresh, started

COUNTS = np.array([3.0, 2, 4, 1, 5], np.float32)
SHARES = np.array([0.3, 0.2, 0.5, 0.1, 0.7], np.float32)
POSITIVE = np.array([0.6, 1.4, 2.2, 0.3, 1.0], np.float32)
SITES = {
    "f": lambda dist: dist.Normal(0.0, 1.0),
    "p": lambda dist: dist.Beta(2.0, 2.0),
    "g": lambda dist: dist.Gamma(2.0, 0.2),
    "k": lambda dist: dist.LogNormal(1.0, 1.0),
    "m": lambda dist: dist.LogNormal(0.0, 0.5),
}


def sigmoid(host, f):
    return 1 / (1 + host.np.exp(-f))


def beta_binomial(host, p, k):
    return host.dist.BetaBinomial(p * k, (1 - p) * k, 10)


def negative_binomial(host, total, **odds):
    """NumPyro has a class for logits and one for probabilities."""
    if host.name == "pyro":
        return host.dist.NegativeBinomial(total, **odds)
    return host.dist.NegativeBinomial(total, odds.get("probs"), odds.get("logits"))


# By name: the sites, a distribution of them, and the observations.
FORMS = {
    "BetaBinomial, sigmoid": (
        "f k",
        lambda h, f, k: beta_binomial(h, sigmoid(h, f), k),
        COUNTS,
    ),
    "BetaBinomial, Gamma": ("f g", lambda h, f, g: beta_binomial(h, sigmoid(h, f), g), COUNTS),
    "BetaBinomial, Beta": ("p k", beta_binomial, COUNTS),
    "BetaBinomial, exp": ("p f", lambda h, p, f: beta_binomial(h, p, h.np.exp(f)), COUNTS),
    "BetaBinomial, one random": ("p", lambda h, p: beta_binomial(h, p, 10.0), COUNTS),
    "BetaBinomial, two": ("k m", lambda h, k, m: h.dist.BetaBinomial(k, m, 10), COUNTS),
    "BetaBinomial, one": ("k", lambda h, k: h.dist.BetaBinomial(k, 2.0, 10), COUNTS),
    "Beta, p k": ("p k", lambda h, p, k: h.dist.Beta(p * k, (1 - p) * k), SHARES),
    "Beta, two": ("k m", lambda h, k, m: h.dist.Beta(k, m), SHARES),
    "Beta, one": ("k", lambda h, k: h.dist.Beta(k, 2.0), SHARES),
    "NegativeBinomial, logits": (
        "k f",
        lambda h, k, f: negative_binomial(h, k, logits=f),
        COUNTS,
    ),
    "NegativeBinomial, probs": ("k p", lambda h, k, p: negative_binomial(h, k, probs=p), COUNTS),
    "NegativeBinomial, total": (
        "k",
        lambda h, k: negative_binomial(h, k, logits=h.array(SHARES)),
        COUNTS,
    ),
    "GammaPoisson": ("k m", lambda h, k, m: h.dist.GammaPoisson(k, k / m), COUNTS),
    "Gamma": ("k m", lambda h, k, m: h.dist.Gamma(k, k / m), POSITIVE),
    "InverseGamma": ("k m", lambda h, k, m: h.dist.InverseGamma(k, m), POSITIVE),
    "Weibull": ("m k", lambda h, m, k: h.dist.Weibull(m, k), POSITIVE),
    "StudentT": ("k f", lambda h, k, f: h.dist.StudentT(k, f, 0.5), POSITIVE),
}


def program(host, form):
    sites, family, observed = FORMS[form]

    def model():
        given = [host.language.sample(name, SITES[name](host.dist)) for name in sites.split()]
        with host.language.plate("rows", len(observed)):
            host.language.sample("y", family(host, *given), obs=host.array(observed))

    return model


@pytest.mark.parametrize("form", FORMS)
def test_the_frameworks_state_the_same_loss(form):
    host, other = fresh("pyro"), HOSTS["numpyro"]
    model, guide = program(host, form), host.package.DVIGuide()
    started(host, model, guide)
    for parameter in guide.parameters():
        parameter.data += 0.1
    loss = host.package.DeterministicELBO().loss(model, guide)
    params = in_numpyro(dict(pyro.get_param_store().items()))
    given = program(other, form), other.package.DVIGuide()
    objective = other.package.DeterministicELBO()
    same = by_numpy(lambda params: objective.loss(jax.random.key(0), params, *given))(params)
    assert loss == pytest.approx(float(same), rel=1e-5)
