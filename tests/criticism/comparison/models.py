"""Models of which chains or linear response have no counterpart."""

from __future__ import annotations

import jax
import numpyro
import pyro
import torch

from tests.criticism.containers.programs import NOISE


def improper(host):
    """A regression with a flat prior."""

    def model(x, y=None):
        support = host.dist.constraints.real
        size = (3,) if host.name == "numpyro" else torch.Size([3])
        flat = host.dist.ImproperUniform(support, size[:0], size)
        weight = host.language.sample("weight", flat)
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(x @ weight, NOISE), obs=y)

    return model


def noisy(host):
    """A regression whose inputs are disturbed by numbers that belong to no site."""

    def model(x, y=None):
        weight = host.weight()
        if host.name == "numpyro":
            noise = jax.random.normal(numpyro.prng_key(), x.shape)
        else:
            noise = torch.randn(x.shape)
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal((x + noise) @ weight, NOISE), obs=y)

    return model


def softplus(host, loc, scale):
    """A model of noise alone, and a guide that is no exponential of a Normal."""

    def model(x, y=None):
        noise = host.language.sample("scale", host.dist.HalfNormal(1.0))
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(0.0, noise), obs=y)

    def guide(x, y=None):
        transform = {
            "numpyro": numpyro.distributions.transforms.SoftplusTransform,
            "pyro": pyro.distributions.transforms.SoftplusTransform,
        }[host.name]()
        base = host.dist.Normal(loc, scale)
        host.language.sample("scale", host.dist.TransformedDistribution(base, transform))

    return model, guide
