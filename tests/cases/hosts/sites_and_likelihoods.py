"""Positive and bounded sites under the functions that make a scale of them, with their ELBO.

The oracle integrates log p(s) + Σ log N(y; 0, f(s)) + log |ds/du| over s = T(u), u ~ N(m, d²), on
nodes; it knows the densities of SciPy and neither host.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from scipy import stats

DATA = np.array([1.0, 0.2, -0.7, 0.4])
LOCATION, SCALE = 0.3, 0.4  # of the posterior, before the transform

# Arguments of the class of both hosts, the same prior in SciPy, and the bounds of its support.
PRIORS: dict[str, tuple[tuple[float, ...], Any, tuple[float, float]]] = {
    "LogNormal": ((0.1, 0.8), stats.lognorm(0.8, scale=np.exp(0.1)), (0.0, np.inf)),
    "Gamma": ((2.0, 3.0), stats.gamma(2.0, scale=1 / 3), (0.0, np.inf)),
    "InverseGamma": ((2.0, 3.0), stats.invgamma(2.0, scale=3.0), (0.0, np.inf)),
    "HalfNormal": ((1.3,), stats.halfnorm(scale=1.3), (0.0, np.inf)),
    "HalfCauchy": ((0.7,), stats.halfcauchy(scale=0.7), (0.0, np.inf)),
    "Exponential": ((0.6,), stats.expon(scale=1 / 0.6), (0.0, np.inf)),
    "Beta": ((2.0, 1.5), stats.beta(2.0, 1.5), (0.0, 1.0)),
    "Uniform": ((0.0, 2.0), stats.uniform(0.0, 2.0), (0.0, 2.0)),
    "Uniform away from zero": ((0.5, 2.0), stats.uniform(0.5, 1.5), (0.5, 2.0)),
}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "s": lambda xp, s: s,
    "sqrt": lambda xp, s: xp.sqrt(s),
    "1 / s": lambda xp, s: 1 / s,
    "1 / sqrt": lambda xp, s: 1 / xp.sqrt(s),
    "s ** 2": lambda xp, s: s**2,
    "s ** -0.5": lambda xp, s: s**-0.5,
    "s + 0.1": lambda xp, s: s + 0.1,
    "2 s": lambda xp, s: 2 * s,
    "log1p": lambda xp, s: xp.log1p(s),
    "exp of log": lambda xp, s: xp.exp(xp.log(s)),
}


def elbo(prior: str, function: str) -> float:
    """The evidence lower bound."""
    _, density, (low, high) = PRIORS[prior]
    z, weights = np.polynomial.hermite_e.hermegauss(120)
    u = LOCATION + SCALE * z
    if high == np.inf:
        value, slope = low + np.exp(u), u
    else:
        share = 1 / (1 + np.exp(-u))
        value = low + (high - low) * share
        slope = np.log((high - low) * share * (1 - share))
    scale = FUNCTIONS[function](np, value)
    likelihood = stats.norm.logpdf(DATA[:, None], scale=scale).sum(0)
    total = density.logpdf(value) + likelihood + slope
    entropy = 0.5 + 0.5 * np.log(2 * np.pi) + np.log(SCALE)
    return float(total @ weights / weights.sum() + entropy)


CONTINUOUS = np.array([0.4, -1.2, 2.0])
POSITIVE = np.array([0.6, 1.4, 2.2])
COUNTS = np.array([0.0, 2.0, 5.0])
BINARY = np.array([0.0, 1.0, 1.0])
CLASSES = np.array([0, 1, 2])
CUTS = np.array([-0.5, 0.6])
GATE = 0.3


def shared(
    dist: ModuleType,
    *,
    exp: Callable,
    tanh: Callable,
    sigmoid: Callable,
    softplus: Callable,
    ndtr: Callable,
) -> dict[str, tuple[Callable, np.ndarray]]:
    """Those spelled alike, of the host's functions: of f, and the observations."""
    return {
        "Normal, nonlinear": (lambda f: dist.Normal(tanh(f), exp(f)), CONTINUOUS),
        "LogNormal": (lambda f: dist.LogNormal(f, 0.5), POSITIVE),
        "LogNormal, scale": (lambda f: dist.LogNormal(0.2, exp(f)), POSITIVE),
        "Laplace": (lambda f: dist.Laplace(f, 0.5), CONTINUOUS),
        "StudentT, both": (lambda f: dist.StudentT(3.0, f, exp(0.1 * f)), CONTINUOUS),
        "Cauchy": (lambda f: dist.Cauchy(f, 0.5), CONTINUOUS),
        "Gumbel": (lambda f: dist.Gumbel(f, 1.0), CONTINUOUS),
        "Logistic": (lambda f: dist.Logistic(f, 2.0), CONTINUOUS),
        "VonMises": (lambda f: dist.VonMises(f, 2.0), CONTINUOUS),
        "HalfNormal": (lambda f: dist.HalfNormal(exp(f)), POSITIVE),
        "Gamma, log link": (lambda f: dist.Gamma(2.0, 2.0 * exp(-f)), POSITIVE),
        "Gamma, both": (lambda f: dist.Gamma(exp(f), exp(f)), POSITIVE),
        "Exponential": (lambda f: dist.Exponential(softplus(f)), POSITIVE),
        "Weibull": (lambda f: dist.Weibull(exp(f), 2.0), POSITIVE),
        "Bernoulli, logits": (lambda f: dist.Bernoulli(logits=f), BINARY),
        "Bernoulli, sigmoid": (lambda f: dist.Bernoulli(sigmoid(f)), BINARY),
        "Bernoulli, probit": (lambda f: dist.Bernoulli(ndtr(f)), BINARY),
        "Bernoulli, cdf": (lambda f: dist.Bernoulli(dist.Normal(0.0, 1.0).cdf(f)), BINARY),
        "Binomial, logits": (lambda f: dist.Binomial(7, logits=f), COUNTS),
        "Binomial, probs": (lambda f: dist.Binomial(7, sigmoid(f)), COUNTS),
        "NegativeBinomial": (lambda f: dist.NegativeBinomial(3.0, logits=f), COUNTS),
        "Geometric": (lambda f: dist.Geometric(logits=f), COUNTS),
        "Poisson, exp": (lambda f: dist.Poisson(exp(f)), COUNTS),
        "Poisson, softplus": (lambda f: dist.Poisson(softplus(f)), COUNTS),
        "GammaPoisson": (lambda f: dist.GammaPoisson(2.0, exp(f)), COUNTS),
    }
