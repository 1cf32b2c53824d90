"""Find random values inside a distribution object, and rebuild it with arrays in their place.

NumPyro's distributions are trees whose leaves are the parameters and what is derived from
them. A leaf that is a value of the calculus is random. Other leaves can replace it
without a constructor. Some distributions hold the same numbers in a form without moments,
such as the stacked parameters of a Beta: these are removed, and derived again from arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions.constraints import Constraint
from numpyro.distributions.transforms import SimplexToOrderedTransform

from moment_calculus.likelihoods import families
from moment_calculus.operations import catalogue as ops
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.rules.table import RANDOM, is_random

_HOLDERS = (list, tuple, dist.Distribution)


def distributions_in(fn: Any) -> list[Any]:
    """Return a distribution, or a list of them, and all that are inside it, the innermost first."""
    if not isinstance(fn, _HOLDERS):
        return []
    is_list = isinstance(fn, list | tuple)
    parts = [part for part in (fn if is_list else vars(fn).values()) if isinstance(part, _HOLDERS)]
    inside = list(chain.from_iterable(map(distributions_in, parts)))
    return inside if is_list else [*inside, fn]


def stripped(fn: Any) -> Any:
    """Return a copy of a distribution without what it derives from its parameters."""
    new = copied(fn)
    for part in distributions_in(new):
        vars(part).update(dict.fromkeys(_derivations(part.__class__)))
    return new


def restored(fn: Any) -> Any:
    """Return a copy of a distribution with all that it derives from its certain parameters."""
    new = copied(fn)
    for part in distributions_in(new):
        for name, derive in _derivations(part.__class__).items():
            if vars(part).get(name) is None:
                vars(part)[name] = derive(part)
    return new


def copied(fn: Any) -> Any:
    """Return a copy of a distribution and of all that are inside it, with the same arrays."""
    if not distributions_in(fn):
        return fn
    if isinstance(fn, list | tuple):
        return type(fn)(map(copied, fn))
    new = copy.copy(fn)
    attributes = vars(fn).items()
    vars(new).update({name: copied(a) for name, a in attributes if isinstance(a, _HOLDERS)})
    return new


def _dirichlet(fn: Any) -> Any:
    pair = jnp.broadcast_arrays(fn.concentration1, fn.concentration0)
    return dist.Dirichlet(jnp.stack(pair, -1), validate_args=False)


def _gamma(fn: Any) -> Any:
    return dist.Gamma(fn.concentration, fn.rate, validate_args=False)


def _ordered(fn: Any) -> Any:
    return SimplexToOrderedTransform(fn.predictor).inv(fn.cutpoints)


DERIVED: dict[type, dict[str, Callable[[Any], Any]]] = {
    dist.Beta: {"_dirichlet": _dirichlet},
    dist.OrderedLogistic: {"probs": _ordered},
    dist.GammaPoisson: {"_gamma": _gamma},
    dist.NegativeBinomialLogits: {"rate": lambda fn: jnp.exp(-fn.logits), "_gamma": _gamma},
    dist.NegativeBinomialProbs: {"rate": lambda fn: 1 / fn.probs - 1, "_gamma": _gamma},
}


@cache
def _derivations(kind: type) -> dict[str, Callable[[Any], Any]]:
    kinds = (base for base in kind.__mro__ if base in DERIVED)
    return next((DERIVED[base] for base in kinds), {})


def random_leaves(fn: Any) -> list[Any]:
    """Return all random values inside a distribution or another tree."""
    return [leaf for leaf in jax.tree.leaves(fn, is_leaf=is_random) if isinstance(leaf, RANDOM)]


def has_moments(fn: Any) -> bool:
    """Return whether any parameter of a distribution is random."""
    return bool(random_leaves(fn))


def settled_parameters(fn: Any) -> Any:
    """Return a distribution whose random parameters have covariances computed backwards."""
    rank = len(families.unwrapped(fn, WRAPPERS)[0].batch_shape)
    found = ops.settle_parameters(random_leaves(fn), rank)
    if not found:
        return fn
    return jax.tree.map(lambda leaf: found.get(id(leaf), leaf), fn, is_leaf=is_random)


def constrained_values(fn: Any) -> Iterator[tuple[str, Any, Constraint]]:
    """Yield name, value and constraint of all random parameters, also of inner distributions."""
    for part in distributions_in(fn):
        known = _constraints(part)
        for name, attribute in vars(part).items():
            if is_random(attribute) and name in known:
                yield name, attribute, known[name]


def random_parameters(fn: Any) -> list[tuple[Any, int]]:
    """Return the random values inside a distribution, and how many axes are of one element."""
    axes = {id(value): kind.event_dim for _, value, kind in constrained_values(fn)}
    return [(value, axes.get(id(value), 0)) for value in random_leaves(fn)]


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
    indices = _in_order([n for n, leaf in enumerate(leaves) if is_random(leaf)], leaves, fn)

    def given(*arrays: Any) -> Any:
        points = dict(zip(indices, arrays, strict=True))
        filled = [points[n] if n in points else _double(leaf) for n, leaf in enumerate(leaves)]
        new = restored(jax.tree.unflatten(tree, filled))
        for part in distributions_in(new):
            part._validate_args = False
        return new

    return [leaves[index] for index in indices], given


def _in_order(indices: list[int], leaves: list[Any], fn: Any) -> list[int]:
    """Sort indices of leaves by the order in which classes declare the parameters."""
    # NumPyro flattens parameters in the order of a set of names, which the hash seed decides.
    parts = [(vars(part), _constraints(part)) for part in distributions_in(fn)]
    attributes = [id(values.get(name)) for values, declared in parts for name in declared]
    ranks = {key: rank for rank, key in reversed(list(enumerate(attributes)))}
    return sorted(indices, key=lambda index: ranks.get(id(leaves[index]), len(ranks)))


def component(fn: Any, index: int) -> Any:
    """Return one of the univariate distributions along the trailing axis of a batch."""
    size = fn.batch_shape[-1]

    def at(leaf: Any) -> Any:
        shape = jnp.shape(leaf) if not is_random(leaf) else leaf.shape
        return ops.index(leaf, (..., index if shape[-1] == size else 0)) if shape else leaf

    new = jax.tree.map(at, stripped(fn), is_leaf=is_random)
    for part in distributions_in(new):
        part._batch_shape = part.batch_shape[:-1]
    return new


def placeholder(fn: Any) -> Any:
    """Return the distribution with zeros for random values, to read what they do not change."""

    def certain(leaf: Any) -> Any:
        return jnp.zeros(leaf.shape) if is_random(leaf) else leaf

    return restored(jax.tree.map(certain, stripped(fn), is_leaf=is_random))


def _double(leaf: Any) -> Any:
    if jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
        return jnp.asarray(leaf, jax.dtypes.canonicalize_dtype(np.float64))
    return leaf
