"""Ordered vectors: the first component, then the sum of it and positive gaps."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.reductions import cumulative_sum
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import Expanded, Reshaped
from moment_calculus.values import Gaussian
from moment_calculus.values.elementwise import affine

_COORDINATES = "coordinates of an ordered vector"


def ordered_vector(coordinates: Gaussian) -> Gaussian:
    """Return x₀, x₀ + e^{x₁}, x₀ + e^{x₁} + e^{x₂}, … of coordinates x [..., k].

    Its mean and covariance are exact; functions of it take it as Gaussian.
    """
    value = _ordered(coordinates) if coordinates.shape[-1] > 1 else affine(coordinates, 1.0, 0.0)
    value.memo.arrays[_COORDINATES] = coordinates
    return value


def _ordered(coordinates: Gaussian) -> Gaussian:
    first = index(coordinates, (..., slice(0, 1)))
    gaps = apply(activation("exp"), index(coordinates, (..., slice(1, None))))
    return cumulative_sum(concatenate([first, gaps], -1), len(coordinates.shape) - 1)


def coordinates_of(value: Any) -> Gaussian | None:
    """Return the coordinates of an ordered vector, which may be repeated; None of other values."""
    value = repeated_vector(value)
    return value.memo.arrays.get(_COORDINATES) if isinstance(value, Gaussian) else None


def repeated_vector(value: Any) -> Any:
    """Return the vector that was repeated along leading axes; other values as they are."""
    while isinstance(value, Gaussian) and isinstance(value.step, Expanded | Reshaped):
        source = value.step.source
        if source.shape[-1:] != value.shape[-1:] or math.prod(source.shape[:-1]) != 1:
            break
        value = source
    return value


def expected_log_slope(coordinates: Gaussian) -> Array:
    """Return E log |Jacobian| of an ordered vector by its coordinates, [...]."""
    return namespace(coordinates.mean).sum(coordinates.mean[..., 1:], axis=-1)
