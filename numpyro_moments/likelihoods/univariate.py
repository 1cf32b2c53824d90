"""NumPyro's side of likelihoods and moments of univariate distributions by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import constraints

from moment_calculus import likelihoods
from moment_calculus.likelihoods.univariate import (
    Univariate,
    check_unconstrained,
    check_univariate,
)
from numpyro_moments.likelihoods.structure import (
    constrained_values,
    has_moments,
    placeholder,
    replaced,
    restored,
)
from numpyro_moments.rules.table import is_random

_BINARY = dist.BernoulliLogits, dist.BernoulliProbs


def draw_observations(fn: Any, key: jax.Array, count: int, shape: tuple[int, ...]) -> jax.Array:
    """Draw parameters, and an observation for each: [count, *shape]."""
    distribution_at, arguments = _parametrise(fn)
    keys = iter(jax.random.split(key, 3))  # of at most two Gaussians, and of the observation

    def noise(shape: tuple[int, ...]) -> jax.Array:
        return jax.random.normal(next(keys), shape)

    points = likelihoods.draw_arguments(arguments, count, noise)

    def observation(key: jax.Array, *points: jax.Array) -> jax.Array:
        return distribution_at(*points).expand(shape).sample(key)

    return jax.vmap(observation)(jax.random.split(next(keys), count), *points)


def _vectorise(function: Callable[..., Any], shape: tuple[int, ...]) -> Callable[..., jax.Array]:
    """Return a function of arrays that is mapped over the axes of nodes before a shape."""

    # The distribution gets one node at a time, and so the shapes that it was made for.
    def mapped(*arguments: Any) -> jax.Array:
        if not arguments:
            return jnp.broadcast_to(function(), shape)
        wide = np.broadcast_shapes(shape, *(jnp.shape(argument) for argument in arguments))
        nodes = wide[: len(wide) - len(shape)]
        flat = [jnp.reshape(jnp.broadcast_to(a, wide), (-1, *shape)) for a in arguments]
        results = jax.vmap(function)(*flat)
        return jnp.reshape(jnp.broadcast_to(results, flat[0].shape), (*nodes, *shape))

    return mapped


def _parametrise(fn: Any) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function from random parameters to the distribution, and the parameters."""
    arguments, distribution_at = replaced(fn)
    check_univariate(fn, arguments)
    check_unconstrained(
        fn, constrained_values(fn), _may_be_unbounded, link_names="jnp.exp(h) or jax.nn.sigmoid(h)"
    )
    return distribution_at, arguments


def _may_be_unbounded(constraint: Any) -> bool:
    """Return whether a constraint allows any real number, or cannot be checked."""
    if constraints.is_dependent(constraint) or constraint.event_dim:
        return True
    if any(hasattr(bound, "shape") for bound in jax.tree.leaves(constraint, is_leaf=is_random)):
        return True
    return all(bool(constraint(point)) for point in (-1.5, 1.5))


def _is_floating(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.floating)


def _double(value: Any) -> Any:
    if is_random(value) or isinstance(value, int | float):
        return value
    value = jnp.asarray(value)
    if not _is_floating(value):
        return value
    # Nodes are float64 if JAX allows it. In float32 the error is that of NumPyro's
    # density: 1e-6, relative or absolute, measured over ten families.
    return value.astype(jax.dtypes.canonicalize_dtype(np.float64))


UNIVARIATE = Univariate(
    parametrise=_parametrise,
    vectorise=_vectorise,
    certain=lambda fn: None if has_moments(fn) else restored(fn),
    support=lambda fn: placeholder(fn).support,
    is_random=is_random,
    is_floating=_is_floating,
    double=_double,
    binary=_BINARY,
    trials=(*_BINARY, dist.BinomialLogits, dist.BinomialProbs),
)
