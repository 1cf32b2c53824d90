"""Chains of which the posterior is known: exact draws in place of those of NUTS."""

import numpy as np
import pyro
import pyro.infer
import torch

from tests.criticism.containers.programs import NOISE


class ExactInPyro(pyro.infer.MCMC):
    """Finished chains of Pyro, [chains, draws, ...], and which diverge."""

    def __init__(self, samples, diverging):
        super().__init__(pyro.infer.NUTS(_nothing), num_samples=1)
        self._samples = {name: torch.as_tensor(part) for name, part in samples.items()}
        self._diagnostics = [{"divergences": list(np.flatnonzero(part))} for part in diverging]


def _nothing():
    """A model."""


def chains(samples, diverging=None):
    """Finished chains by site, [chains, draws, ...], and which diverge."""
    shape = next(iter(samples.values())).shape[:2]
    return ExactInPyro(samples, np.zeros(shape, bool) if diverging is None else diverging)


def improper(host):
    """A regression with a flat prior."""

    def model(x, y=None):
        size = torch.Size([3])
        flat = host.dist.ImproperUniform(host.dist.constraints.real, size[:0], size)
        weight = host.language.sample("weight", flat)
        host.observe(x, host.dist.Normal(x @ weight, NOISE), y)

    return model


def noisy(host):
    """A regression whose inputs are disturbed by numbers that belong to no site."""

    def model(x, y=None):
        weight, noise = host.weight(), torch.randn(x.shape)
        host.observe(x, host.dist.Normal((x + noise) @ weight, NOISE), y)

    return model


def softplus(host, loc, scale):
    """A model of noise alone, and a guide that is no exponential of a Normal."""

    def model(x, y=None):
        noise = host.language.sample("scale", host.dist.HalfNormal(1.0))
        host.observe(x, host.dist.Normal(0.0, noise), y)

    def guide(x, y=None):
        transform = host.dist.transforms.SoftplusTransform()
        base = host.dist.Normal(loc, scale)
        host.language.sample("scale", host.dist.TransformedDistribution(base, transform))

    return model, guide
