"""Latent Gaussian models in both hosts, as nested inference sees them."""

from contextlib import ExitStack

import numpy as np
import torch

from numpyro_moments.evaluation.arguments import Precision, in_jax
from numpyro_moments.response import conditional as in_numpyro
from pyro_moments.response import conditional as in_pyro
from tests.fitting.models import HOSTS

GROUPS, ROWS = 4, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, GROUPS))
COUNTS = rng.poisson(np.exp(X)).astype(float)
SEEN = np.arange(ROWS * GROUPS).reshape(ROWS, GROUPS) % 5 != 1


def nested_model(host, make, *data):
    """A model of a host with its data, in double precision."""
    model = make(host)
    if host.name == "pyro":
        return in_pyro.NestedModel(model, tuple(map(torch.as_tensor, data)), {})
    precision = Precision(True)
    with precision():
        return in_numpyro.NestedModel(model, in_jax(data, True), {}, precision)


def nested_models(make, *data):
    """A model in each host."""
    return [nested_model(host, make, *data) for host in HOSTS.values()]


def in_plates(host, stack):
    """Rows of groups, some of them unseen, and all of them counted twice and a half."""
    handlers = host.handlers
    for context in (
        host.language.plate("rows", ROWS, dim=-2),
        host.language.plate("groups of rows", GROUPS, dim=-1),
        handlers.mask(mask=host.array(SEEN)),
        handlers.scale(scale=2.5),
    ):
        stack.enter_context(context)


def intercepts(kind):
    """Groups with intercepts of their own, of an unknown spread."""

    def make(host):
        dist, sample = host.dist, host.language.sample

        def model(x, y):
            spread = sample("spread", dist.HalfNormal(1.0))
            slope = sample("slope", dist.Normal(0.0, 2.0))
            with host.language.plate("groups", GROUPS):
                effect = sample("effect", dist.Normal(0.0, spread))
            logits = 0.3 + slope * x + effect
            rate = host.np.exp(logits)
            with ExitStack() as stack:
                in_plates(host, stack)
                fn = dist.Poisson(rate) if kind == "counts" else dist.Bernoulli(logits=logits)
                sample("y", fn, obs=y if kind == "counts" else y % 2)

        return model

    return make


def scattered(host):
    """Counts of unknown concentration, and by a simplex."""
    dist, sample = host.dist, host.language.sample

    def model(x, y):
        concentration = sample("concentration", dist.LogNormal(0.0, 1.0))
        shares = sample("shares", dist.Dirichlet(host.np.ones(3)))
        effect = sample("effect", dist.Normal(0.0, shares[0]).expand([GROUPS]).to_event(1))
        logits = shares[1] * x + effect - host.np.log(concentration)
        with ExitStack() as stack:
            in_plates(host, stack)
            sample("y", dist.NegativeBinomial(concentration, logits=logits), obs=y)

    return model


def walk(host):
    """A walk by its steps, seen with noise whose size is unknown."""
    dist, sample = host.dist, host.language.sample

    def model(y):
        step, noise = (sample(name, dist.Normal(0.0, 1.0)) for name in ("step", "noise"))
        z = sample("z", dist.Normal(0.0, 1.0).expand([len(y)]).to_event(1))
        path = host.np.cumsum(host.np.exp(step) * z, -1)
        sample("y", dist.Normal(path, host.np.exp(noise)).to_event(1), obs=y)

    return model
