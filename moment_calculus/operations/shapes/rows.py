"""Where a move of elements takes the axis of rows, by strides: moves are not told again for rows.

An array that differs along its rows alone has one stride. A move takes the stride along to the
axis of the rows in its result; a copy, and a part of the rows, have other strides.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["STEP", "array_of_rows", "axis_of_rows", "strides_of_rows"]

STEP = 2  # elements from row to row, unlike the one element between neighbours in a copy


def strides_of_rows(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the strides of an array of a shape that differs along one axis alone."""
    return tuple(STEP if dimension == axis % len(shape) else 0 for dimension in range(len(shape)))


def array_of_rows(shape: Sequence[int], axis: int) -> np.ndarray:
    """Return such an array of bytes, which has memory for its rows alone."""
    line = np.empty(STEP * shape[axis], np.int8)
    return np.lib.stride_tricks.as_strided(line, shape, strides_of_rows(shape, axis))


def axis_of_rows(shape: Sequence[int], strides: Sequence[int], count: int) -> int | None:
    """Return the negative axis of all ``count`` rows in a moved array, by its strides.

    Returns None if rows are mixed, reordered or left out.
    """
    sizes = enumerate(zip(shape, strides, strict=True), start=-len(shape))
    varying = {axis: entry for axis, entry in sizes if entry[0] > 1 and entry[1]}
    return next(iter(varying)) if list(varying.values()) == [(count, STEP)] else None
