"""Moments as arguments of a model: what stands for them in the model and in the guide."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.predictions.moments import Moments, draws_from
from numpyro_moments.evaluation.arguments import CALLS


def _from_parts(_: Any, parts: tuple) -> Moments:
    """Return moments with parts from JAX, which need not be arrays of any shape."""
    moments = object.__new__(Moments)
    moments.mean, moments.variance, moments.covariance = parts
    moments._attribute = None
    return moments


# Moments pass through jax.jit, jax.vmap and other transformations.
jax.tree_util.register_pytree_node(
    Moments,
    lambda moments: ((moments.mean, moments.variance, moments.covariance), None),
    _from_parts,
)

Inputs = Callable[[str, Moments], Any]  # makes the value of an argument, given its name


def is_moments(leaf: Any) -> bool:
    """Return whether a leaf of arguments is uncertain."""
    return isinstance(leaf, Moments)


def moments_in_jax(moments: Moments) -> Moments:
    """Return moments in arrays of JAX: NumPy's do not mix with traced ones."""
    return moments.mapped(jnp.asarray)


def _checked(moments: Moments) -> Moments:
    if not is_traced(moments.variance):  # inside of a program JAX would trace the smallest
        moments.check(np.min(np.asarray(moments.variance), initial=0.0))
    return moments_in_jax(moments)


def at_means(args: tuple, kwargs: Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with the means of moments."""
    return with_values(None, args, kwargs, lambda _, moments: moments.mean)


def with_values(
    model: Any, args: tuple, kwargs: Mapping[str, Any], value: Inputs
) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with values in the places of moments, named as the model names them."""
    names = [*CALLS.parameters(model)] if model is not None else []
    names += [f"argument {place}" for place in range(len(names), len(args))]

    def filled(name: str, argument: Any) -> Any:
        def of_leaf(path: tuple, leaf: Any) -> Any:
            inside = f"{name}{jax.tree_util.keystr(path)}"
            return value(inside, _checked(leaf)) if is_moments(leaf) else leaf

        return jax.tree_util.tree_map_with_path(of_leaf, argument, is_leaf=is_moments)

    return (
        tuple(filled(name, part) for name, part in zip(names, args, strict=False)),
        {name: filled(name, part) for name, part in kwargs.items()},
    )


def drawn(key: Any) -> Inputs:
    """Return what draws uncertain arguments, each with a key of its own."""

    def value(name: str, moments: Moments) -> jax.Array:
        of_name = jax.random.fold_in(key, zlib.crc32(name.encode()))
        noise = jax.random.normal(of_name, moments.shape, moments.mean.dtype)
        return draws_from(moments, noise)

    return value
