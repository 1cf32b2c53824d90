"""Ordered vectors: the first component, then the sum of it and positive gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.functions.families.elementary import Exp
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.reductions import cumulative_sum
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.coordinates import Support, on_support
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.deferred import as_function
from moment_calculus.values.elementwise import affine

__all__ = ["ORDERED", "as_ordered"]


def _ordered(coordinates: Gaussian) -> Gaussian:
    """Return x₀, x₀ + e^{x₁}, x₀ + e^{x₁} + e^{x₂}, … of coordinates x [..., k].

    Its mean and covariance are exact; functions of it take it as Gaussian.
    """
    if coordinates.shape[-1] == 1:
        return affine(coordinates, 1.0, 0.0)
    first = index(coordinates, (..., slice(0, 1)))
    gaps = apply(activation("exp"), index(coordinates, (..., slice(1, None))))
    return cumulative_sum(concatenate([first, gaps], -1), len(coordinates.shape) - 1)


def _slope(coordinates: Gaussian) -> Array:
    return namespace(coordinates.mean).sum(coordinates.mean[..., 1:], axis=-1)


ORDERED = Support(_ordered, _slope)


def as_ordered(value: Any) -> Gaussian | None:
    """Return the ordered vector that the cumulative sums of x₀, e^{x₁}, … are; None of others."""
    parts: tuple[Any, ...] = getattr(value.gaussian().step, "parts", ())
    if len(parts) != 2:
        return None
    gaps = as_function(parts[1])
    if not isinstance(gaps, Deferred) or type(gaps.function) is not Exp:
        return None
    (source, first), (other, rest) = map(_choice, (parts[0].step, gaps.base.step))
    if source is None or source is not other:
        return None
    columns = [*range(source.shape[-1])]
    return on_support(ORDERED, source) if (first, rest) == (columns[:1], columns[1:]) else None


def _choice(step: Any) -> tuple[Any, list[int]]:
    """Return a value and the features that a slice chooses of it; None of other steps."""
    source, key = getattr(step, "source", None), getattr(step, "key", None)
    if source is None or not isinstance(key, slice):
        return None, []
    return source, np.arange(source.shape[-1])[key].tolist()
