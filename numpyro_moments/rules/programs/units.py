"""Draws with probabilities that may be random, as calls that the interpreter recognises."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value

# Whether a program runs at the means, where a draw is its mean; part of the key of jax.jit's cache.
AT_MEAN = jax.make_user_context(False)


@jax.custom_jvp
def below(uniform: jax.Array, probability: jax.Array) -> jax.Array:
    """Return one where uniform numbers are below a probability, else zero."""
    return (uniform < probability).astype(probability.dtype)


@below.defjvp
def _straight_through(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return below(*primals), tangents[1]


@jax.custom_jvp
def one_hot_below(uniform: jax.Array, probabilities: jax.Array) -> jax.Array:
    """Return the indicator [..., classes] of a class that uniform numbers [..., 1] choose."""
    return _one_hot_below(uniform, probabilities)


@one_hot_below.defjvp
def _straight_through_classes(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    return one_hot_below(*primals), tangents[1]


@jax.jit
def _one_hot_below(uniform: jax.Array, probabilities: jax.Array) -> jax.Array:
    total = jnp.cumsum(probabilities, axis=-1)
    index = jnp.sum(uniform * total[..., -1:] >= total, axis=-1)
    return jax.nn.one_hot(index, probabilities.shape[-1], dtype=probabilities.dtype)


def one_hot_value(uniform: Any, probabilities: Any) -> Value | None:
    """Return the moments of what ``one_hot_below`` draws; None for numbers that are no noise."""
    if not isinstance(uniform, ops.Uniform):
        return None
    if hasattr(probabilities, "sites"):
        probabilities = probabilities.gaussian()
    return ops.one_hot(probabilities, uniform.source.propagation)
