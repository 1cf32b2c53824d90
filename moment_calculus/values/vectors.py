"""A batch of dependent scalars as one vector, with the covariance that a contraction needs.

Dependence between elements of a batch is not stored, for there may be many: the effects
of a plate that share a mean and a scale. Where they are summed with weights after all,
the value is computed again from its independent components, with the trailing axis as the
feature axis.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.entries import Entries, entries_of
from moment_calculus.values.gaussian import Gaussian, Root
from moment_calculus.values.spread import Spread


def as_vector(value: Gaussian) -> Gaussian | None:
    """Return a batch of scalars with its trailing axis as feature axis; None if that is unknown.

    Exact where the value is computed from independent components and scalars by sums,
    products and functions of each component. A component used twice is one vector used
    twice.
    """
    vector = value.memo.values.get("vector")
    if vector is None:
        vector = _compute_vector(value)
        if vector is not None:
            value.memo.values["vector"] = vector
    return vector


def _compute_vector(value: Gaussian) -> Gaussian | None:
    if value.axis is not None or not value.shape:
        return value if value.axis == -1 else None
    entries = entries_of(value)
    switched = branches_of(value) is not None  # a root would lose its branches
    if value.independent and not switched and (entries is not None or value.step.affine is None):
        return _root(value, entries, Spread(value.variance))
    if entries is not None and not switched:
        covariance = partial(entries.covariance, value.variance)
        dense = covariance if value.propagation.full else None
        return _root(value, entries, Spread(value.variance, dense, covariance))
    return value.step.as_vector(value)


def _root(value: Gaussian, entries: Entries | None, spread: Spread) -> Gaussian:
    root, flow = Root(entries_override=entries), value.propagation
    return Gaussian(
        value.mean, spread, root, support=value.support, ties=value.ties, propagation=flow
    )


def from_vector_parts(combine: Callable[..., Any], *parts: Gaussian) -> Gaussian | None:
    """Return ``combine`` of batches of scalars as vectors; None if one of them is not known so."""
    vectors = [as_vector(part) for part in parts]
    if any(vector is None for vector in vectors):
        return None
    result = combine(*vectors)
    return None if result is None else result.gaussian()
