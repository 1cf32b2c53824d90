"""Chains of which the posterior is known: exact draws in place of those of NUTS, in both hosts."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import numpyro.infer
import pyro
import pyro.infer
import torch

from tests.criticism.containers.programs import NOISE


class ExactInNumPyro(numpyro.infer.MCMC):
    """Finished chains of NumPyro.

    Args:
        samples: by site, [chains, draws, ...].
        diverging: [chains, draws].
    """

    def __init__(self, samples, diverging):
        super().__init__(numpyro.infer.NUTS(_nothing), num_warmup=1, num_samples=1)
        self.samples, self.diverging = samples, diverging

    last_state = "finished"

    def get_samples(self, group_by_chain=False):
        if group_by_chain:
            return self.samples
        return {name: part.reshape(-1, *part.shape[2:]) for name, part in self.samples.items()}

    def get_extra_fields(self, group_by_chain=False):
        return {"diverging": self.diverging if group_by_chain else self.diverging.ravel()}


class ExactInPyro(pyro.infer.MCMC):
    """Finished chains of Pyro.

    Args:
        samples: by site, [chains, draws, ...].
        diverging: [chains, draws].
    """

    def __init__(self, samples, diverging):
        super().__init__(pyro.infer.NUTS(_nothing), num_samples=1)
        self._samples = {name: torch.as_tensor(part) for name, part in samples.items()}
        self._diagnostics = [{"divergences": list(np.flatnonzero(part))} for part in diverging]


def _nothing():
    """A model."""


def chains(host, samples, diverging=None):
    """Finished chains of a host.

    Args:
        host: the host.
        samples: by site, [chains, draws, ...].
        diverging: [chains, draws]; by default none.
    """
    shape = next(iter(samples.values())).shape[:2]
    found = np.zeros(shape, bool) if diverging is None else diverging
    kind = {"numpyro": ExactInNumPyro, "pyro": ExactInPyro}[host.name]
    return kind(samples, found)


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
