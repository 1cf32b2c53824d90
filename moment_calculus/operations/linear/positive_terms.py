"""Sums of few positive functions by linear maps: the terms of which they are the sum."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.combinators import Bounds, value_range
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.factors import Joint, assume_positive, total
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import broadcast, narrow
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.deferred import as_function
from moment_calculus.values.spread import broadcast_shape

LARGEST = 16  # terms, each of which may be a function of a Gaussian of its own


def sum_of_positive(
    source: Gaussian, axis: int, matrix: Array | None = None, *, squeezed: bool = False
) -> Joint | None:
    """Return M f(x), or the sum of f(x) along an axis, as a function of every component.

    None if f is not known to be positive, has too many components, or M [outputs, inputs] has
    negative entries or a row without a positive one. A traced M is taken as not negative; the
    only output is ``squeezed`` away in scalar products.
    """
    function = as_function(source)
    if not isinstance(function, Deferred) or source.shape[axis] > LARGEST:
        return None
    function = assume_positive(function)
    if not function.bounds.positive or not _is_positive(matrix, len(source.shape)):
        return None
    parts = _components(function, axis % len(source.shape), squeezed)
    if matrix is not None:
        matrix = matrix[..., 0, :] if squeezed else matrix
        parts = [_scaled(part, matrix[..., i]) for i, part in enumerate(parts)]
    return Joint(total, tuple(parts), Bounds(0.0, math.inf, True))


def _components(function: Deferred, axis: int, squeezed: bool) -> list[Any]:
    """Return the components along an axis; of one Gaussian if it is repeated along the axis."""
    ahead, base = (slice(None),) * axis, narrow(function.base)
    keys = [i if squeezed else slice(i, i + 1) for i in range(function.shape[axis])]
    parts = [index(function, (*ahead, key)) for key in keys]
    axis_there = axis - len(function.shape)
    if -axis_there <= len(base.shape) and base.shape[axis_there] > 1:
        return parts
    return [Deferred(parts[0].base, part.function) for part in parts]


def _scaled(part: Any, column: Array) -> Any:
    wide = broadcast(part, broadcast_shape(part.shape, column.shape))
    return assume_positive(scale_shift(wide, column))


def _is_positive(matrix: Array | None, rank: int) -> bool:
    """Whether a matrix has no negative entry, and no row of zeros, as far as that is known."""
    if matrix is None:
        return True
    if len(matrix.shape) != 2 and rank != 1:  # a matrix for every row
        return False
    ends, sums = value_range(matrix), value_range(namespace(matrix).sum(matrix, axis=-1))
    return ends is None or sums is None or (ends[0] >= 0 and sums[0] > 0)
