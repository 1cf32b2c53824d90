"""The same models in both hosts, written once: a model is a function of a small vocabulary.

``sample(name, fn, obs=None)`` and ``plate(name, size)`` are the host's, ``dist`` its distributions
and ``np`` its arrays (torch, or jax.numpy).
"""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions
import pyro
import pyro.distributions
import torch

HIDDEN, INPUTS, POINTS, GROUPS = 5, 3, 12, 4

PYRO = SimpleNamespace(
    sample=pyro.sample, plate=pyro.plate, dist=pyro.distributions, np=torch, relu=torch.relu
)
NUMPYRO = SimpleNamespace(
    sample=numpyro.sample, plate=numpyro.plate, dist=numpyro.distributions, np=jnp, relu=jax.nn.relu
)


def arrays() -> dict[str, np.ndarray]:
    """Inputs x [n, d], targets y [n], classes [n] and groups [n]."""
    random = np.random.default_rng(0)
    x = random.normal(size=(POINTS, INPUTS))
    y = np.sin(x[:, 0]) + 0.5 * x[:, 1] + 0.2 * random.normal(size=POINTS)
    return {
        "x": x,
        "y": y,
        "classes": np.digitize(y, [-0.3, 0.6]),
        "groups": np.arange(POINTS) % GROUPS,
    }


def weights(host: Any, name: str, *shape: int) -> Any:
    scale = shape[0] ** -0.5
    return host.sample(name, host.dist.Normal(0.0, scale).expand(shape).to_event(len(shape)))


def dense(host: Any, name: str, x: Any, outputs: int) -> Any:
    weight = weights(host, f"{name}_weight", x.shape[-1], outputs)
    return x @ weight + weights(host, f"{name}_bias", outputs)


def perceptron(host: Any, x: Any, outputs: int) -> Any:
    h = host.relu(dense(host, "first", x, HIDDEN))
    h = host.np.tanh(dense(host, "second", h, HIDDEN))
    return dense(host, "last", h, outputs)


def regression(host, x, y):
    mean = perceptron(host, x, 1)[:, 0]
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Normal(mean, 0.3), obs=y)


def residual(host, x, y):
    h = dense(host, "first", x, HIDDEN)
    for block in ("second", "third"):
        h = h + host.relu(dense(host, block, h, HIDDEN))
    mean = dense(host, "last", h, 1)[:, 0]
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Normal(mean, 0.3), obs=y)


def heteroscedastic(host, x, y):
    out = perceptron(host, x, 2)
    with host.plate("data", POINTS):
        scale = host.np.exp(0.5 * out[:, 1])
        host.sample("obs", host.dist.Normal(out[:, 0], scale), obs=y)


def categorical(host, x, classes):
    logits = perceptron(host, x, 3)
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Categorical(logits=logits), obs=classes)


def hierarchical(host, x, groups, y):
    """Varying intercepts around a mean, with a common spread and slopes."""
    mu = host.sample("mu", host.dist.Normal(0.0, 2.0))
    tau = host.sample("tau", host.dist.LogNormal(-0.5, 0.5))
    slope = weights(host, "slope", INPUTS)
    with host.plate("groups", GROUPS):
        theta = host.sample("theta", host.dist.Normal(mu, tau))
    with host.plate("data", POINTS):
        host.sample("obs", host.dist.Normal(theta[groups] + x @ slope, 0.5), obs=y)
