"""Likelihoods as users write them in Pyro, of a random f and an observation of three elements."""

import pyro.distributions as dist
import torch
import torch.nn.functional as F
from torch.distributions import AffineTransform

from tests.cases.hosts import sites_and_likelihoods as likelihood_cases

CONTINUOUS = torch.tensor(likelihood_cases.CONTINUOUS)
POSITIVE = torch.tensor(likelihood_cases.POSITIVE)
COUNTS = torch.tensor(likelihood_cases.COUNTS)
CLASSES = torch.tensor(likelihood_cases.CLASSES)
CUTS = torch.tensor(likelihood_cases.CUTS)
GATE = torch.tensor(likelihood_cases.GATE, dtype=torch.float64)
STANDARD = dist.Normal(torch.zeros(3, dtype=torch.float64), 1.0)

SHARED = likelihood_cases.shared(
    dist,
    exp=torch.exp,
    tanh=torch.tanh,
    sigmoid=torch.sigmoid,
    softplus=F.softplus,
    ndtr=torch.special.ndtr,
)
CASES = {name: (make, torch.tensor(value)) for name, (make, value) in SHARED.items()} | {
    "transformed": (
        lambda f: dist.TransformedDistribution(STANDARD, [AffineTransform(f, 2.0)]),
        CONTINUOUS,
    ),
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
