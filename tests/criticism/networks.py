"""Networks in both hosts, and the accuracy of their moments under mean-field guides."""

from __future__ import annotations

import jax
import numpy as np
import numpyro
import torch
from pyro.infer.autoguide import init_to_value

from tests.response.models import doubles

INITIAL = {"numpyro": numpyro.infer.init_to_value, "pyro": init_to_value}
random = np.random.default_rng(4)
X = random.normal(size=(6, 3))
Y = np.sin(X[:, 0])
ACTIVATIONS = {
    "relu": {"numpyro": jax.nn.relu, "pyro": torch.relu},
    "tanh": {"numpyro": jax.numpy.tanh, "pyro": torch.tanh},
}


def weights(host, name, *shape):
    prior = host.dist.Normal(host.array(0.0), host.array(1.0)).expand(shape)
    return host.language.sample(name, prior.to_event(len(shape)))


def network(host, *activations, units=8):
    """Maps written alike in both hosts, with these activations between them."""

    def model(x, y=None):
        for place, name in enumerate(activations):
            x = x @ weights(host, f"weight{place}", x.shape[-1], units)
            x = ACTIVATIONS[name][host.name](x + weights(host, f"bias{place}", units))
        f = (x @ weights(host, "weight", x.shape[-1], 1))[:, 0]
        with host.language.plate("data", len(x)):
            host.language.sample("obs", host.dist.Normal(f, 0.3), obs=y)

    return model


def guided(host, model, *data, init_scale=0.3, values=None):
    """A guide at its initial parameters, these, and the data, in double precision."""
    options = {"init_scale": init_scale}
    if values is not None:
        arrays = {name: host.array(value) for name, value in values.items()}
        options["init_loc_fn"] = INITIAL[host.name](values=arrays)
    guide = host.package.DVIGuide(**options)
    arrays = [host.array(part) for part in data]
    loss = host.package.DeterministicELBO()
    if host.name == "pyro":
        loss.loss(model, guide, *arrays)
        return guide, {}, arrays
    svi = host.package.SVI(model, guide, loss)
    params = svi.get_params(svi.init(jax.random.key(0), *arrays))
    return guide, {"params": params, "rng_key": jax.random.key(1)}, arrays


def accuracy(host, model, *data, init_scale=0.3, values=None, **options):
    """Of the moments under a guide at its initial parameters, in double precision."""
    with doubles(host):
        guide, known, arrays = guided(host, model, *data, init_scale=init_scale, values=values)
        return host.package.moment_accuracy(model, guide, *arrays, **known, **options)
