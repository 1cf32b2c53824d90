"""Networks with random weights in NumPyro, as its users write them."""

from __future__ import annotations

from collections.abc import Callable

import numpyro.distributions as dist
from flax import linen
from jax import Array
from numpyro.contrib.module import random_flax_module


def bayesian(name: str, network: linen.Module) -> Callable[[Array], Array]:
    """Give every weight and bias a standard normal prior, scaled by fan-in for weights."""

    def prior(part: str, shape: tuple[int, ...]) -> dist.Distribution:
        return dist.Normal(0.0, shape[0] ** -0.5 if part.endswith("kernel") else 1.0)

    return lambda x: random_flax_module(name, network, prior, input_shape=x.shape[1:])(x)


class Perceptron(linen.Module):
    inputs: int
    hidden: int
    outputs: int

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.relu(linen.Dense(self.hidden)(x))
        return linen.Dense(self.outputs)(h)


class Residual(linen.Module):
    """Two residual blocks between linear maps."""

    inputs: int
    hidden: int

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.Dense(self.hidden)(x)
        for _ in range(2):
            h = h + linen.relu(linen.Dense(self.hidden)(h))
        return linen.Dense(1)(h)


class Normalised(linen.Module):
    inputs: int
    hidden: int

    @linen.compact
    def __call__(self, x: Array) -> Array:
        h = linen.Dense(self.hidden)(x)
        h = linen.LayerNorm(use_scale=False, use_bias=False)(h)
        return linen.Dense(1)(linen.gelu(h))


class Trunk(linen.Module):
    inputs: int
    hidden: int

    @linen.compact
    def __call__(self, x: Array) -> Array:
        return linen.tanh(linen.Dense(self.hidden)(x))


def linear(inputs: int, outputs: int) -> linen.Module:
    return linen.Dense(outputs)


perceptron, residual, normalised, trunk = Perceptron, Residual, Normalised, Trunk
