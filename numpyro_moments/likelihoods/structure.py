"""Find random values inside a distribution object, and rebuild it with arrays in their place.

NumPyro's distributions are trees whose leaves are the parameters and what is derived from
them. A leaf that is a value of the calculus is random. Other leaves can replace it
without a constructor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.constraints import Constraint

from numpyro_moments.likelihoods.derived import distributions_in, restored, stripped
from numpyro_moments.rules.table import is_random

__all__ = [
    "constrained_values",
    "has_moments",
    "is_random",
    "placeholder",
    "random_leaves",
    "replaced",
]


def random_leaves(fn: Any) -> list[Any]:
    """Return all random values inside a distribution or another tree."""
    return [leaf for leaf in jax.tree.leaves(fn, is_leaf=is_random) if is_random(leaf)]


def has_moments(fn: Any) -> bool:
    """Return whether any parameter of a distribution is random."""
    return bool(random_leaves(fn))


def constrained_values(fn: Any) -> Iterator[tuple[str, Any, Constraint]]:
    """Yield name, value and constraint of all random parameters, also of inner distributions."""
    for part in distributions_in(fn):
        known = _constraints(part)
        for name, attribute in vars(part).items():
            if is_random(attribute) and name in known:
                yield name, attribute, known[name]


def _constraints(fn: Any) -> dict[str, Constraint]:
    """Return constraints by parameter, also those of the base classes of a distribution's class."""
    # A NegativeBinomial2 derives the rate that its base class constrains.
    classes = [vars(kind).get("arg_constraints", {}) for kind in reversed(type(fn).__mro__)]
    inherited = {k: v for part in classes if isinstance(part, dict) for k, v in part.items()}
    return {**inherited, **fn.arg_constraints}


def replaced(fn: Any) -> tuple[list[Any], Callable[..., Any]]:
    """Return the random values of a distribution, and the distribution as a function of them.

    The function takes arrays of their shapes, and makes the distribution in double
    precision (where JAX has it) without validation.
    """
    leaves, tree = jax.tree.flatten(stripped(fn), is_leaf=is_random)

    def given(*arrays: Any) -> Any:
        points = iter(arrays)
        filled = [next(points) if is_random(leaf) else _double(leaf) for leaf in leaves]
        new = restored(jax.tree.unflatten(tree, filled))
        for part in distributions_in(new):
            part._validate_args = False
        return new

    return [leaf for leaf in leaves if is_random(leaf)], given


def placeholder(fn: Any) -> Any:
    """Return the distribution with zeros for random values, to read what they do not change."""

    def certain(leaf: Any) -> Any:
        return jnp.zeros(leaf.shape) if is_random(leaf) else leaf

    return restored(jax.tree.map(certain, stripped(fn), is_leaf=is_random))


def _double(leaf: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
        return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.float64))
    return leaf
