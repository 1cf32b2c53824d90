"""Derivatives of what is asked for by a value, for each row of it, and their contractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from moment_calculus.numerics.arrays import (
    Array,
    axis_moved,
    identity_like,
    namespace,
    sums_of_rows,
)

FEW = 3  # up to so many numbers of a row are multiplied pair by pair


@dataclass(frozen=True)
class Cotangent:
    """Derivatives of K numbers in each row of what is asked for, by the components of a value.

    Every axis of the rows has a slot behind that of the K numbers. Its size is one where an
    axis of the value *carries* the rows: then an element along it enters only its own row.
    """

    array: Array  # [K, *slots, *shape of the value], or what broadcasts to it
    carried: tuple[int | None, ...]  # for each axis of the rows the negative axis that carries it

    @property
    def lead(self) -> int:
        """Number of axes before those of the value."""
        return 1 + len(self.carried)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return tuple(self.array.shape[self.lead :])

    def axis_of(self, row: int) -> int:
        """Return the axis of the value that carries an axis of the rows."""
        axis = self.carried[row]
        assert axis is not None
        return axis

    def plus(self, other: Cotangent) -> Cotangent:
        """Return the sum of the derivatives by two uses of a value."""
        first, second = self, other
        for row, pair in enumerate(zip(self.carried, other.carried, strict=True)):
            if pair[0] != pair[1]:
                first, second = (part.spread(row) for part in (first, second))
        return replace(first, array=first.array + second.array)

    def flat(self) -> Array:
        """Return the array with all leading axes in one."""
        return namespace(self.array).reshape(self.array, (-1, *self.shape))

    def unflattened(self, flat: Array) -> Array:
        """Return an array [n, ...] with the leading axes of this one."""
        lead = tuple(self.array.shape[: self.lead])
        return namespace(flat).reshape(flat, (*lead, *flat.shape[1:]))

    def rows_in_slot(self, rows: Array, row: int) -> Array:
        """Return an array [n, rows, ...] with the leading axes of this one, the rows in a slot."""
        xp, lead = namespace(rows), tuple(self.array.shape[: self.lead])
        before, after = lead[: 1 + row], lead[2 + row :]
        apart = xp.reshape(rows, (*before, *after, *rows.shape[1:]))
        return axis_moved(apart, len(before) + len(after), 1 + row)

    def spread(self, row: int) -> Cotangent:
        """Return the same with an axis of the rows in its slot, zero for other rows' elements."""
        axis = self.carried[row]
        if axis is None:
            return self
        size, rank = self.array.shape[axis], self.array.ndim
        xp = namespace(self.array)
        identity = identity_like(axis_moved(self.array, axis, -1)[(0,) * (rank - 1)])
        shape = [1] * rank
        shape[1 + row], shape[axis] = size, size
        array = self.array * xp.reshape(identity, tuple(shape))
        return Cotangent(array, _without(self.carried, row))

    def in_slot(self, row: int) -> Cotangent:
        """Return the sums over other axes kept: the carrying axis becomes the slot's, size one."""
        axis, xp = self.axis_of(row), namespace(self.array)
        array = axis_moved(self.array, axis, 1 + row)
        array = xp.reshape(array, (*array.shape[: 2 + row], *array.shape[3 + row :]))
        return Cotangent(xp.expand_dims(array, axis=axis), _without(self.carried, row))

    def reduced_to(self, shape: Sequence[int]) -> Cotangent:
        """Return the sums over axes that a value of a shape lacks; rows along them go to slots."""
        result, rank = self, len(self.shape)
        narrow = (1,) * (rank - len(shape)) + tuple(shape)
        for axis in range(-rank, 0):
            if narrow[axis] == 1 and result.array.shape[axis] > 1:
                row = next((r for r, a in enumerate(result.carried) if a == axis), None)
                result = result._summed(axis) if row is None else result.in_slot(row)
            elif narrow[axis] == 1 and axis in result.carried:
                carried = tuple(None if a == axis else a for a in result.carried)
                result = replace(result, carried=carried)
        lead = tuple(result.array.shape[: result.lead])
        sizes = tuple(result.array.shape[result.lead + rank - len(shape) :])
        array = namespace(result.array).reshape(result.array, (*lead, *sizes))
        return replace(result, array=array)

    def _summed(self, axis: int) -> Cotangent:
        summed = namespace(self.array).sum(self.array, axis=axis, keepdims=True)
        return replace(self, array=summed)

    def by_rows(self, array: Array | None = None, inner: int = 0) -> Array:
        """Return an array in this one's layout as [K, *rows, m, *inner axes].

        ``inner`` is the number of trailing axes that stay; m counts the other elements of a
        row.
        """
        array = self.array if array is None else array
        rank, lead = array.ndim, self.lead
        rows = [1 + r if a is None else rank + a for r, a in enumerate(self.carried)]
        rest = [a for a in range(lead, rank - inner) if a not in rows]
        empty = [1 + r for r, a in enumerate(self.carried) if a is not None]
        xp = namespace(array)
        ordered = xp.permute_dims(array, (0, *rows, *empty, *rest, *range(rank - inner, rank)))
        sizes = tuple(array.shape[axis] for axis in (0, *rows))
        trailing = tuple(array.shape[rank - inner :])
        count = math.prod(array.shape[axis] for axis in rest)
        return xp.reshape(ordered, (*sizes, count, *trailing))

    def wide(self, array: Array) -> Array:
        """Return an array of the value's shape with the leading axes of this one."""
        return namespace(array).broadcast_to(array, self.shape)[(None,) * self.lead]


def _without(carried: tuple[int | None, ...], row: int) -> tuple[int | None, ...]:
    return tuple(None if index == row else axis for index, axis in enumerate(carried))


def products(left: Array, right: Array) -> Array:
    """Return Σ over the trailing axis of l_k r_l, [*rows, K, K], for arrays [K, *rows, m]."""
    if left.shape[0] > FEW:
        return axis_moved(left, 0, -2) @ axis_moved(right, 0, -1)
    sums = sums_of_rows(left[:, None] * right[None])
    return axis_moved(axis_moved(sums, 0, -1), 0, -1)


@dataclass(frozen=True)
class OuterCotangent:
    """Derivatives by a matrix [out, in] that maps inputs: sums of outer products.

    They are never formed where every row has one product.
    """

    outputs: Cotangent  # of the mapped value [..., out]
    inputs: Array  # the mean of the inputs, [..., in]
    scale: Any = 1.0  # by which each element is multiplied: a number, or an array [out, in]

    def scaled(self, scale: Any) -> OuterCotangent:
        """Return the derivatives by an argument of which the matrix is ``scale`` times."""
        return replace(self, scale=self.scale * scale)

    def sides(self) -> tuple[Array, Array]:
        """Return [K, *rows, n, out] and [1, *rows, n, in] for n products in each row."""
        spread = self.outputs
        for row, axis in enumerate(spread.carried):
            spread = spread.spread(row) if axis == -1 else spread
        xp = namespace(self.inputs)
        wide = xp.broadcast_to(self.inputs, (*spread.shape[:-1], self.inputs.shape[-1]))
        right = spread.by_rows(wide[(None,) * spread.lead], inner=1)
        return spread.by_rows(inner=1), right
