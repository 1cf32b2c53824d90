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
    parts = getattr(value.gaussian().step, "parts", ())
    if len(parts) != 2:
        return None
    gaps = as_function(parts[1])
    if not isinstance(gaps, Deferred) or type(gaps.function) is not Exp:
        return None
    first, rest = parts[0].step, gaps.base.step
    source = getattr(first, "source", None)
    if source is None or getattr(rest, "source", None) is not source:
        return None
    size = source.shape[-1]
    places = [np.arange(size)[step.key] for step in (first, rest) if _is_slice(step)]
    return on_support(ORDERED, source) if [*map(list, places)] == [[0], [*range(1, size)]] else None


def _is_slice(step: Any) -> bool:
    return isinstance(getattr(step, "key", None), slice)
