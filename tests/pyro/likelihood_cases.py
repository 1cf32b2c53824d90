"""Likelihoods as users write them, of a random f and an observation of three elements."""

from __future__ import annotations

import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch.distributions import AffineTransform

CONTINUOUS = torch.tensor([0.4, -1.2, 2.0], dtype=torch.float64)
POSITIVE = torch.tensor([0.6, 1.4, 2.2], dtype=torch.float64)
COUNTS = torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)
BINARY = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
CLASSES = torch.tensor([0, 1, 2])
CUTS = torch.tensor([-0.5, 0.6], dtype=torch.float64)
GATE = torch.tensor(0.3, dtype=torch.float64)
STANDARD = dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0)

CASES = {
    "Normal, nonlinear": (lambda f: dist.Normal(torch.tanh(f), torch.exp(f)), CONTINUOUS),
    "LogNormal": (lambda f: dist.LogNormal(f, 0.5), POSITIVE),
    "LogNormal, scale": (lambda f: dist.LogNormal(0.2, torch.exp(f)), POSITIVE),
    "Laplace": (lambda f: dist.Laplace(f, 0.5), CONTINUOUS),
    "StudentT, both": (lambda f: dist.StudentT(3.0, f, torch.exp(0.1 * f)), CONTINUOUS),
    "Cauchy": (lambda f: dist.Cauchy(f, 0.5), CONTINUOUS),
    "Gumbel": (lambda f: dist.Gumbel(f, 1.0), CONTINUOUS),
    "Logistic": (lambda f: dist.Logistic(f, 2.0), CONTINUOUS),
    "VonMises": (lambda f: dist.VonMises(f, 2.0), CONTINUOUS),
    "HalfNormal": (lambda f: dist.HalfNormal(torch.exp(f)), POSITIVE),
    "Gamma, log link": (lambda f: dist.Gamma(2.0, 2.0 * torch.exp(-f)), POSITIVE),
    "Gamma, both": (lambda f: dist.Gamma(torch.exp(f), torch.exp(f)), POSITIVE),
    "Exponential": (lambda f: dist.Exponential(F.softplus(f)), POSITIVE),
    "Weibull": (lambda f: dist.Weibull(torch.exp(f), 2.0), POSITIVE),
    "transformed": (
        lambda f: dist.TransformedDistribution(STANDARD, [AffineTransform(f, 2.0)]),
        CONTINUOUS,
    ),
    "Bernoulli, logits": (lambda f: dist.Bernoulli(logits=f), BINARY),
    "Bernoulli, sigmoid": (lambda f: dist.Bernoulli(torch.sigmoid(f)), BINARY),
    "Bernoulli, probit": (lambda f: dist.Bernoulli(torch.special.ndtr(f)), BINARY),
    "Bernoulli, cdf": (lambda f: dist.Bernoulli(dist.Normal(0.0, 1.0).cdf(f)), BINARY),
    "Binomial, logits": (lambda f: dist.Binomial(7, logits=f), COUNTS),
    "Binomial, probs": (lambda f: dist.Binomial(7, torch.sigmoid(f)), COUNTS),
    "NegativeBinomial": (lambda f: dist.NegativeBinomial(3.0, logits=f), COUNTS),
    "Geometric": (lambda f: dist.Geometric(logits=f), COUNTS),
    "Poisson, exp": (lambda f: dist.Poisson(torch.exp(f)), COUNTS),
    "Poisson, softplus": (lambda f: dist.Poisson(F.softplus(f)), COUNTS),
    "GammaPoisson": (lambda f: dist.GammaPoisson(2.0, torch.exp(f)), COUNTS),
    "ZeroInflatedPoisson": (lambda f: dist.ZeroInflatedPoisson(torch.exp(f), gate=GATE), COUNTS),
    "ZeroInflatedPoisson, both": (
        lambda f: dist.ZeroInflatedPoisson(torch.exp(f), gate_logits=f),
        COUNTS,
    ),
    "ZeroInflatedNegativeBinomial": (
        lambda f: dist.ZeroInflatedNegativeBinomial(total_count=2.0, logits=f, gate=GATE),
        COUNTS,
    ),
    "OrderedLogistic": (lambda f: dist.OrderedLogistic(f, CUTS), CLASSES),
}
