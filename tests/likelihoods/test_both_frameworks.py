"""Likelihoods by how their parameters come: served by one framework, and by the other alike.

Every row of the table is a likelihood whose parameters come in one of the ways. The likelihoods
of a kind are observed in one model, whose loss the frameworks state alike.
"""

import jax
import numpy as np
import pyro
import pytest
import torch

from moment_calculus.errors import UnsupportedMoments
from tests.checks.carried import in_numpyro
from tests.checks.jaxprs import by_numpy
from tests.fitting.models import HOSTS, fresh, started

GROUPS = np.array([0, 1, 2, 0, 1, 2])
X = np.array([[0.5, -1], [1.2, 0.3], [-0.7, 0.9], [0.1, -0.2], [2, 1], [-1.5, 0.4]], np.float32)
BY = np.array([0.5, 1.5, 2.0, 1.0, 0.8, 1.2], np.float32)
REAL = np.array([0.3, -1.2, 2.0, 0.7, -0.4, 1.1], np.float32)
POSITIVE = np.array([0.6, 1.4, 2.2, 0.3, 1.0, 3.1], np.float32)
SHARE = np.array([0.3, 0.2, 0.5, 0.1, 0.7, 0.6], np.float32)
BINARY = np.array([0, 1, 1, 0, 1, 0], np.float32)
COUNT = np.array([3, 0, 4, 1, 5, 2], np.float32)
CLASS = np.array([0, 1, 2, 1, 0, 2])
COUNTS = np.array([[1, 4, 0], [3, 1, 1], [0, 1, 4], [2, 1, 2], [2, 2, 1], [0, 3, 2]], np.float32)
VECTORS = np.array([X[:, 0], X[:, 1], BY]).T
ROOT = np.array([[1, 0, 0], [0.3, 0.8, 0], [-0.2, 0.1, 1.1]], np.float32)


def negative_binomial(host, total, **odds):
    """NumPyro has a class for logits and one for probabilities."""
    if host.name == "pyro":
        return host.dist.NegativeBinomial(total, **odds)
    return host.dist.NegativeBinomial(total, odds.get("probs"), odds.get("logits"))


def zero_inflated_negative_binomial(host, logits):
    gate, total = host.array(np.float32(0.3)), 3.0
    if host.name == "pyro":
        return host.dist.ZeroInflatedNegativeBinomial(total, logits=logits, gate=gate)
    counts = host.dist.NegativeBinomialLogits(total, logits)
    return host.dist.ZeroInflatedDistribution(counts, gate=gate)


def zero_inflated_poisson(host, gate, rate):
    gate, rate = (host.array(np.float32(x)) if isinstance(x, float) else x for x in (gate, rate))
    return host.dist.ZeroInflatedPoisson(gate=gate, rate=rate)


def mixture(host, places, **weights):
    components = host.dist.Normal(host.array(places), 0.5)
    return host.dist.MixtureSameFamily(host.dist.Categorical(**weights), components)


# By kind of the parameters and name: a distribution, and its observations.
REALS = {
    "Normal": (lambda h, f: h.dist.Normal(f, 0.5), REAL),
    "LogNormal": (lambda h, f: h.dist.LogNormal(f, 0.5), POSITIVE),
    "StudentT": (lambda h, f: h.dist.StudentT(4.0, f, 0.5), REAL),
    "Laplace": (lambda h, f: h.dist.Laplace(f, 0.5), REAL),
    "Cauchy": (lambda h, f: h.dist.Cauchy(f, 0.5), REAL),
    "Gumbel": (lambda h, f: h.dist.Gumbel(f, 0.5), REAL),
    "Logistic": (lambda h, f: h.dist.Logistic(f, 0.5), REAL),
    "AsymmetricLaplace": (lambda h, f: h.dist.AsymmetricLaplace(f, 0.5, 1.3), REAL),
    "VonMises": (lambda h, f: h.dist.VonMises(f, 2.0), REAL),
    "Bernoulli": (lambda h, f: h.dist.Bernoulli(logits=f), BINARY),
    "Binomial": (lambda h, f: h.dist.Binomial(10, logits=f), COUNT),
    "NegativeBinomial": (lambda h, f: negative_binomial(h, 3.0, logits=f), COUNT),
    "ZeroInflatedNegativeBinomial": (zero_inflated_negative_binomial, COUNT),
    "Geometric": (lambda h, f: h.dist.Geometric(logits=f), COUNT),
    "OrderedLogistic": (lambda h, f: h.dist.OrderedLogistic(f, h.array([-0.5, 0.8])), CLASS),
}
SCALES = {
    "Normal": (lambda h, k: h.dist.Normal(0.2, k), REAL),
    "LogNormal": (lambda h, k: h.dist.LogNormal(0.2, k), POSITIVE),
    "StudentT": (lambda h, k: h.dist.StudentT(4.0, 0.2, k), REAL),
    "degrees of freedom": (lambda h, k: h.dist.StudentT(k, 0.2, 0.7), REAL),
    "Laplace": (lambda h, k: h.dist.Laplace(0.2, k), REAL),
    "Cauchy": (lambda h, k: h.dist.Cauchy(0.2, k), REAL),
    "Gumbel": (lambda h, k: h.dist.Gumbel(0.2, k), REAL),
    "SoftLaplace": (lambda h, k: h.dist.SoftLaplace(0.2, k), REAL),
    "VonMises": (lambda h, k: h.dist.VonMises(0.3, k), REAL),
    "HalfNormal": (lambda h, k: h.dist.HalfNormal(k), POSITIVE),
    "HalfCauchy": (lambda h, k: h.dist.HalfCauchy(k), POSITIVE),
    "Uniform": (lambda h, k: h.dist.Uniform(0.0, 4 + k), POSITIVE),
}
RATES = {
    "Poisson": (lambda h, k: h.dist.Poisson(k), COUNT),
    "ZeroInflatedPoisson": (lambda h, k: zero_inflated_poisson(h, 0.3, k), COUNT),
    "NegativeBinomial": (lambda h, k: negative_binomial(h, k, logits=h.array(SHARE)), COUNT),
    "GammaPoisson": (lambda h, k: h.dist.GammaPoisson(2.0, k), COUNT),
    "Gamma": (lambda h, k: h.dist.Gamma(k, 0.7), POSITIVE),
    "rate of Gamma": (lambda h, k: h.dist.Gamma(2.0, k), POSITIVE),
    "Exponential": (lambda h, k: h.dist.Exponential(k), POSITIVE),
    "Weibull": (lambda h, k: h.dist.Weibull(1.2, k), POSITIVE),
    "InverseGamma": (lambda h, k: h.dist.InverseGamma(k, 0.7), POSITIVE),
    "Pareto": (lambda h, k: h.dist.Pareto(0.1, k), POSITIVE),
    "Chi2": (lambda h, k: h.dist.Chi2(k), POSITIVE),
    "Beta": (lambda h, k: h.dist.Beta(k, 2.0), SHARE),
    "BetaBinomial": (lambda h, k: h.dist.BetaBinomial(k, 2.0, 10), COUNT),
}
SHARES = {
    "Bernoulli": (lambda h, p: h.dist.Bernoulli(probs=p), BINARY),
    "Binomial": (lambda h, p: h.dist.Binomial(10, probs=p), COUNT),
    "NegativeBinomial": (lambda h, p: negative_binomial(h, 3.0, probs=p), COUNT),
    "Geometric": (lambda h, p: h.dist.Geometric(probs=p), COUNT),
    "ZeroInflatedPoisson": (lambda h, p: zero_inflated_poisson(h, p, 2.0), COUNT),
    "Beta": (lambda h, p: h.dist.Beta(5 * p, 5 * (1 - p)), SHARE),
    "BetaBinomial": (lambda h, p: h.dist.BetaBinomial(5 * p, 5 * (1 - p), 10), COUNT),
}
PAIRS = {
    "Normal": (lambda h, f, p, k, m: h.dist.Normal(f, k), REAL),
    "StudentT": (lambda h, f, p, k, m: h.dist.StudentT(k, f, 0.5), REAL),
    "Gamma": (lambda h, f, p, k, m: h.dist.Gamma(k, k / m), POSITIVE),
    "GammaPoisson": (lambda h, f, p, k, m: h.dist.GammaPoisson(k, k / m), COUNT),
    "InverseGamma": (lambda h, f, p, k, m: h.dist.InverseGamma(k, m), POSITIVE),
    "Weibull": (lambda h, f, p, k, m: h.dist.Weibull(m, k), POSITIVE),
    "Beta": (lambda h, f, p, k, m: h.dist.Beta(p * k, (1 - p) * k), SHARE),
    "two of Beta": (lambda h, f, p, k, m: h.dist.Beta(k, m), SHARE),
    "BetaBinomial": (lambda h, f, p, k, m: h.dist.BetaBinomial(p * k, (1 - p) * k, 10), COUNT),
    "NegativeBinomial": (lambda h, f, p, k, m: negative_binomial(h, k, logits=f), COUNT),
    "its probability": (lambda h, f, p, k, m: negative_binomial(h, k, probs=p), COUNT),
}
CLASSES = {
    "Categorical": (lambda h, z, q: h.dist.Categorical(logits=z), CLASS),
    "its probabilities": (lambda h, z, q: h.dist.Categorical(probs=q), CLASS),
    "Multinomial": (lambda h, z, q: h.dist.Multinomial(5, logits=z), COUNTS),
    "probabilities of Multinomial": (lambda h, z, q: h.dist.Multinomial(5, probs=q), COUNTS),
    "weights of a mixture": (lambda h, z, q: mixture(h, ROOT[2], probs=q), REAL),
    "their logits": (lambda h, z, q: mixture(h, ROOT[2], logits=z), REAL),
    "vectors": (lambda h, z, q: h.dist.MultivariateNormal(z, scale_tril=h.array(ROOT)), VECTORS),
}


def site(host, name, prior, groups=False):
    """A site, or one for each group, with those of the rows."""
    if not groups:
        return host.language.sample(name, prior)
    with host.language.plate(f"groups of {name}", 3):
        return host.language.sample(name, prior)[host.array(GROUPS)]


def heads(host, count):
    """Outputs of a network of three units."""
    normal = host.dist.Normal(0.0, 0.7)
    first = host.language.sample("first", normal.expand([2, 3]).to_event(2))
    last = host.language.sample("last", normal.expand([3, count]).to_event(2))
    return host.np.tanh(host.array(X) @ first) @ last


def real(host, name="f", groups=False):
    return site(host, name, host.dist.Normal(0.0, 1.0), groups)


def positive(host, name="k", groups=False):
    return site(host, name, host.dist.LogNormal(0.0, 0.5), groups)


def share(host, name="p", groups=False):
    return site(host, name, host.dist.Beta(2.0, 2.0), groups)


def sigmoid(host, x):
    return torch.sigmoid(x) if host.name == "pyro" else jax.nn.sigmoid(x)


def softmax(host, x):
    return torch.softmax(x, -1) if host.name == "pyro" else jax.nn.softmax(x)


def several(host, groups=False):
    """A real number, a share and two positive numbers."""
    sites = real(host, groups=groups), share(host, groups=groups)
    return *sites, positive(host, groups=groups), positive(host, "m")


def several_heads(host):
    out = heads(host, 4)
    return out[:, 0], sigmoid(host, out[:, 1]), host.np.exp(out[:, 2]), host.np.exp(out[:, 3])


def classes(host, groups=False):
    """Three logits and three probabilities."""
    logits = site(host, "z", host.dist.Normal(0.0, 1.0).expand([3]).to_event(1), groups)
    return logits, site(host, "q", host.dist.Dirichlet(host.array(ROOT[0] + 1)), groups)


def class_heads(host):
    return (logits := heads(host, 3)), softmax(host, logits)


POSITIVE_WAYS = {
    "site": positive,
    "groups": lambda h: positive(h, groups=True),
    "head": lambda h: h.np.exp(heads(h, 1)[:, 0]),
    "sum": lambda h: positive(h, groups=True) + positive(h, "m"),
    "product": lambda h: positive(h, groups=True) * positive(h, "m"),
    "constant": lambda h: h.array(BY) * positive(h),
}
# By kind: the likelihoods, and how their parameters come.
TABLE = {
    "real": (
        REALS,
        {
            "site": real,
            "groups": lambda h: real(h, groups=True),
            "head": lambda h: heads(h, 1)[:, 0],
            "sum": lambda h: real(h, groups=True) + real(h, "g"),
            "product": lambda h: real(h, groups=True) * positive(h),
            "constant": lambda h: h.array(BY) * real(h),
        },
    ),
    "scale": (SCALES, POSITIVE_WAYS),
    "rate": (RATES, POSITIVE_WAYS),
    "share": (
        SHARES,
        {
            "site": share,
            "groups": lambda h: share(h, groups=True),
            "head": lambda h: sigmoid(h, heads(h, 1)[:, 0]),
            "ratio": lambda h: (k := positive(h, groups=True)) / (k + positive(h, "m")),
            "product": lambda h: share(h, groups=True) * share(h, "r"),
            "constant": lambda h: 1 - h.np.exp(-h.array(BY) * positive(h)),
        },
    ),
    "several": (
        PAIRS,
        {"site": several, "groups": lambda h: several(h, groups=True), "head": several_heads},
    ),
    "classes": (
        CLASSES,
        {"site": classes, "groups": lambda h: classes(h, groups=True), "head": class_heads},
    ),
}


def program(host, kind, way, names):
    likelihoods, ways = TABLE[kind]

    def model():
        given = ways[way](host)
        given = given if isinstance(given, tuple) else (given,)
        with host.language.plate("rows", len(X)):
            for name in names:
                family, observed = likelihoods[name]
                host.language.sample(f"y, {name}", family(host, *given), obs=host.array(observed))

    return model


def losses(kind, way, names):
    """The loss of the likelihoods in both frameworks, at one posterior."""
    host, other = fresh("pyro"), HOSTS["numpyro"]
    model, guide = program(host, kind, way, names), host.package.DVIGuide()
    started(host, model, guide)
    for parameter in guide.parameters():
        parameter.data += 0.1
    loss = host.package.DeterministicELBO().loss(model, guide)
    params = in_numpyro(dict(pyro.get_param_store().items()))
    given = program(other, kind, way, names), other.package.DVIGuide()
    objective = other.package.DeterministicELBO()
    same = by_numpy(lambda params: objective.loss(jax.random.key(0), params, *given))(params)
    return loss, pytest.approx(float(same), rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "way"), [(kind, way) for kind, (_, ways) in TABLE.items() for way in ways]
)
def test_the_frameworks_state_the_same_loss(kind, way):
    names = list(TABLE[kind][0])
    try:
        loss, same = losses(kind, way, names)
    except UnsupportedMoments:
        loss = same = None
    if loss is None or loss != same:  # which of them?
        for name in names:
            loss, same = losses(kind, way, [name])
            assert loss == same, name
