"""Moments as arguments of a model: what stands for them in the model and in the guide."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics import private_apis
from moment_calculus.predictions import Moments, draws_from
from moment_inference.objectives import each_argument, observations
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


def at_mean(_: str, moments: Moments) -> Any:
    """Return the mean of an uncertain argument."""
    return moments.mean


def at_means(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with the means of moments."""
    return with_values(None, args, kwargs, at_mean)


def with_values(
    model: Any, args: tuple, kwargs: dict[str, Any], value: Inputs
) -> tuple[tuple, dict[str, Any]]:
    """Return arguments with values in the places of moments, named as the model names them."""
    leaves = jax.tree.leaves((args, kwargs), is_leaf=is_moments)
    if not any(map(is_moments, leaves)):
        return args, kwargs

    def filled(name: str, argument: Any) -> Any:
        def of_leaf(path: tuple, leaf: Any) -> Any:
            if not is_moments(leaf):
                return leaf
            known = not private_apis.is_traced(leaf.variance)
            observations.check_variances(np.asarray(leaf.variance) if known else None)
            return value(f"{name}{jax.tree_util.keystr(path)}", moments_in_jax(leaf))

        return jax.tree_util.tree_map_with_path(of_leaf, argument, is_leaf=is_moments)

    names = [] if model is None else [*CALLS.parameters(model)]
    return each_argument(args, kwargs, names, filled)


def drawn(key: Any) -> Inputs:
    """Return what draws uncertain arguments, each with a key of its own."""

    def value(name: str, moments: Moments) -> jax.Array:
        of_name = jax.random.fold_in(key, zlib.crc32(name.encode()))
        noise = jax.random.normal(of_name, moments.shape, moments.mean.dtype)
        return draws_from(moments, noise)

    return value
