"""Ordered vectors: the first component, then the sum of it and positive gaps."""

from __future__ import annotations

from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.unary import apply
from moment_calculus.operations.linear.reductions import cumulative_sum
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.coordinates import Support
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.values import Gaussian
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
