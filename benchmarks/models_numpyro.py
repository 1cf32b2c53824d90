"""Twelve NumPyro models of different kinds, with data, as their users would write them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from flax import linen
from jax import Array
from numpyro.contrib.module import random_flax_module

HIDDEN, INPUTS, POINTS, GROUPS = 10, 3, 60, 20


def inputs() -> Array:
    return noise(0, POINTS, INPUTS)


def noise(seed: int, *shape: int) -> Array:
    return jax.random.normal(jax.random.key(seed), shape or (POINTS,))


def trend(x: Array) -> Array:
    return jnp.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1]


def prior(name: str, shape: tuple[int, ...]) -> dist.Distribution:
    """A standard normal prior, scaled by fan-in for weights."""
    return dist.Normal(0.0, shape[0] ** -0.5 if name.endswith("kernel") else 1.0)


class Perceptron(linen.Module):
    outputs: int = 1

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.relu(linen.Dense(HIDDEN)(x))
        return linen.Dense(self.outputs)(h)


class Residual(linen.Module):
    """Two residual blocks between linear maps."""

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.Dense(HIDDEN)(x)
        for _ in range(2):
            h = h + linen.relu(linen.Dense(HIDDEN)(h))
        return linen.Dense(1)(h)


class Normalised(linen.Module):
    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.Dense(HIDDEN)(x)
        h = linen.LayerNorm(use_scale=False, use_bias=False)(h)
        return linen.Dense(1)(linen.gelu(h))


class Trunk(linen.Module):
    @linen.compact
    def __call__(self, x: Array) -> Array:
        return linen.tanh(linen.Dense(HIDDEN)(x))


def supervised(network: linen.Module, likelihood: Callable) -> Callable:
    """A network whose outputs parametrise the distribution of every observation.

    Args:
        network: any module.
        likelihood: distribution of the observations, given the network's outputs.
    """

    def model(x: Array, y: Array | None = None) -> Array:
        outputs = random_flax_module("network", network, prior, input_shape=(INPUTS,))(x)
        with numpyro.plate("data", len(x)):
            return numpyro.sample("obs", likelihood(outputs), obs=y)

    return model


def two_heads(x: Array, y: Array, labels: Array) -> None:
    """One trunk, two observed sites: a real one and a binary one."""
    h = random_flax_module("trunk", Trunk(), prior, input_shape=(INPUTS,))(x)
    real, binary = (
        random_flax_module(name, linen.Dense(1), prior, input_shape=(HIDDEN,))(h)[..., 0]
        for name in ("real", "binary")
    )
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Normal(real, 0.4), obs=y)
        numpyro.sample("labels", dist.Bernoulli(logits=binary), obs=labels)


def logistic(x: Array, y: Array) -> None:
    """Logistic regression."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Bernoulli(logits=x @ w + b), obs=y)


def poisson(x: Array, y: Array) -> None:
    """Poisson regression with log link."""
    w = numpyro.sample("w", dist.Normal(0.0, 1.0).expand([INPUTS]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        numpyro.sample("obs", dist.Poisson(jnp.exp(x @ w + b)), obs=y)


def hierarchical(group: Array, y: Array) -> None:
    """Twenty groups around a common mean, with a common spread."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.LogNormal(-0.5, 0.5))
    with numpyro.plate("groups", GROUPS):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", dist.Normal(theta[group], 0.5), obs=y)


def local_latents(x: Array, y: Array) -> None:
    """Noisy inputs: every observation has a latent true input of its own."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", len(x)):
        z = numpyro.sample("z", dist.Normal(x[:, 0], 0.3))
        numpyro.sample("obs", dist.Normal(slope * z, 0.5), obs=y)


def normal(outputs: Array) -> dist.Distribution:
    return dist.Normal(outputs[..., 0], 0.3)


def heteroscedastic(outputs: Array) -> dist.Distribution:
    return dist.Normal(outputs[..., 0], jnp.exp(0.5 * outputs[..., 1]))


def student(outputs: Array) -> dist.Distribution:
    return dist.StudentT(4.0, outputs[..., 0], 0.3)


def ordinal(outputs: Array) -> dist.Distribution:
    return dist.OrderedLogistic(outputs[..., 0], jnp.array([-1.0, 0.5, 1.5]))


def softmax(outputs: Array) -> dist.Distribution:
    return dist.Categorical(logits=outputs)


def twelve_models() -> dict[str, tuple[Callable, tuple[Array, ...]]]:
    """Every model with its arguments, by name."""
    x = inputs()
    y = trend(x) + 0.3 * noise(1)
    heavy = trend(x) + 0.3 * noise(1) * jnp.exp(jnp.maximum(noise(2), 0))
    grades = jnp.searchsorted(jnp.array([-0.5, 0.3, 1.0]), y)
    binary = (y > 0).astype(y.dtype)
    counts = jnp.asarray(np.random.default_rng(3).poisson(np.exp(0.5 * trend(x))))
    group = jnp.arange(POINTS) % GROUPS
    grouped = noise(4, GROUPS)[group] + 0.5 * noise(5)
    return {
        "regression": (supervised(Perceptron(), normal), (x, y)),
        "heteroscedastic": (supervised(Perceptron(2), heteroscedastic), (x, heavy)),
        "robust": (supervised(Perceptron(), student), (x, heavy)),
        "logistic": (logistic, (x, binary)),
        "ordinal": (supervised(Perceptron(), ordinal), (x, grades)),
        "softmax": (supervised(Perceptron(3), softmax), (x, jnp.minimum(grades, 2))),
        "Poisson": (poisson, (x, counts)),
        "hierarchical": (hierarchical, (group, grouped)),
        "residual": (supervised(Residual(), normal), (x, y)),
        "layer norm": (supervised(Normalised(), normal), (x, y)),
        "two heads": (two_heads, (x, y, binary)),
        "local latents": (local_latents, (x, y)),
    }
