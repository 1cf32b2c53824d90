"""Likelihoods as users of either host write them, of a random f and three observations."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np

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
    """Those that are spelled alike: a function of f, and the observations, by name.

    Args:
        dist: the host's distributions.
        exp: its exponential function; and so on.
        tanh: likewise.
        sigmoid: likewise.
        softplus: likewise.
        ndtr: likewise.
    """
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
