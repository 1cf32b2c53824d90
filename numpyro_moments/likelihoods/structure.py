"""Random values inside a distribution object, and the same distribution with arrays for them.

NumPyro's distributions are trees whose leaves are the parameters and what is derived from them (a
reciprocal, a transform, another distribution). A leaf that is a value of the calculus is random;
the tree with arrays in their place needs no constructor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions.constraints import Constraint


def is_random(part: Any) -> bool:
    """Whether a leaf is a value of the calculus, not an array.

    Args:
        part: leaf of a tree.
    """
    return hasattr(part, "gaussian")


def random_leaves(fn: Any) -> list[Any]:
    """All random values inside a distribution or another tree.

    Args:
        fn: a distribution.
    """
    return [leaf for leaf in jax.tree.leaves(fn, is_leaf=is_random) if is_random(leaf)]


def has_moments(fn: Any) -> bool:
    """Whether any parameter of a distribution is random.

    Args:
        fn: a distribution.
    """
    return bool(random_leaves(fn))


def constrained_values(fn: Any) -> Iterator[tuple[str, Any, Constraint]]:
    """Name, value and constraint of every random parameter of a distribution.

    Those of the distributions inside it are found too.

    Args:
        fn: a distribution.
    """
    for part in _distributions(fn):
        for name, attribute in vars(part).items():
            if is_random(attribute) and name in part.arg_constraints:
                yield name, attribute, part.arg_constraints[name]


def _distributions(fn: Any) -> Iterator[Any]:
    """A distribution and all that are inside it."""
    yield fn
    for attribute in vars(fn).values():
        parts = attribute if isinstance(attribute, list | tuple) else [attribute]
        for part in parts:
            if isinstance(part, dist.Distribution):
                yield from _distributions(part)


def replaced(fn: Any) -> tuple[list[Any], Callable[..., Any]]:
    """The random values of a distribution, and the distribution as a function of them.

    Args:
        fn: a distribution.

    Returns:
        The values, and a function from arrays of their shapes to the distribution in double
        precision (where JAX has it) without validation.
    """
    leaves, tree = jax.tree.flatten(_without_stacks(fn), is_leaf=is_random)

    def given(*arrays: Any) -> Any:
        points = iter(arrays)
        filled = [next(points) if is_random(leaf) else _double(leaf) for leaf in leaves]
        return _restored(jax.tree.unflatten(tree, filled))

    return [leaf for leaf in leaves if is_random(leaf)], given


def placeholder(fn: Any) -> Any:
    """The distribution with zeros for its random values, to ask for what they do not change.

    Args:
        fn: a distribution.
    """

    def certain(leaf: Any) -> Any:
        return jnp.zeros(leaf.shape) if is_random(leaf) else leaf

    return jax.tree.map(certain, fn, is_leaf=is_random)


def _double(leaf: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
        return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.float64))
    return leaf


def _without_stacks(fn: Any) -> Any:
    """A copy whose Beta distributions keep only their own two parameters.

    They hold them stacked, too, as those of a Dirichlet: no longer one for each element.
    """
    if isinstance(fn, list | tuple):
        return type(fn)(map(_without_stacks, fn))
    if not isinstance(fn, dist.Distribution) or not has_moments(fn):
        return fn
    new = copy.copy(fn)
    for name, attribute in vars(fn).items():
        vars(new)[name] = _without_stacks(attribute)
    if isinstance(fn, dist.Beta):
        new._dirichlet = None
    return new


def _restored(fn: Any) -> Any:
    """The distribution with the stacks made anew, and without validation."""
    for part in _distributions(fn):
        part._validate_args = False
        if isinstance(part, dist.Beta) and part._dirichlet is None:
            pair = jnp.broadcast_arrays(part.concentration1, part.concentration0)
            part._dirichlet = dist.Dirichlet(jnp.stack(pair, -1), validate_args=False)
    return fn
