"""Primitives of JAX that move, cut and convolve arrays, by NumPy."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.lax import GatherScatterMode
from numpy.lib.stride_tricks import sliding_window_view


def pad(x: Any, value: Any, *, padding_config: Sequence) -> Any:
    """Add elements before, after and between those of each axis; negative numbers take away."""
    low, high, between = np.array(padding_config).reshape(-1, 3).T
    sizes = np.array(x.shape) + between * np.maximum(np.array(x.shape) - 1, 0)
    sizes = sizes.astype(int)
    spread = np.full(sizes + np.maximum(low, 0) + np.maximum(high, 0), value, x.dtype)
    places = zip(np.maximum(low, 0), sizes, between + 1, strict=True)
    spread[tuple(slice(first, first + size, step) for first, size, step in places)] = x
    ends = zip(np.maximum(-low, 0), spread.shape - np.maximum(-high, 0), strict=True)
    return spread[tuple(slice(*pair) for pair in ends)]


def split(x: Any, *, sizes: Sequence[int], axis: int) -> Sequence:
    return np.split(x, np.cumsum(sizes)[:-1], axis)[: len(sizes)]  # of no sizes no part


def _spread(x: Any, padding: Sequence, between: Sequence[int], value: Any = 0) -> Any:
    """Pad the last axes, and dilate them."""
    sides = [(*pair, step - 1) for pair, step in zip(padding, between, strict=True)]
    return pad(x, value, padding_config=[*[(0, 0, 0)] * (x.ndim - len(sides)), *sides])


def convolution(
    x: Any,
    weight: Any,
    *,
    window_strides: Sequence[int],
    padding: Sequence,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    **_: Any,
) -> Any:
    """Products of windows with the weights of their group."""
    x, weight = (
        x.transpose(dimension_numbers.lhs_spec),
        weight.transpose(dimension_numbers.rhs_spec),
    )
    x = _spread(x, padding, lhs_dilation)
    weight = _spread(weight, [(0, 0)] * len(padding), rhs_dilation)
    count, groups = len(padding), max(feature_group_count, batch_group_count)
    axes = tuple(range(2, 2 + count))
    windows = sliding_window_view(x, weight.shape[2:], axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in window_strides))]
    windows = np.moveaxis(windows, 1, 1 + count)  # rows, places, features, window
    rows, places = len(windows) // batch_group_count, windows.shape[1 : 1 + count]
    if batch_group_count > 1:
        windows = windows.reshape(groups, rows * int(np.prod(places)), -1)
    else:
        windows = windows.reshape(rows * int(np.prod(places)), groups, -1).swapaxes(0, 1)
    found = windows @ weight.reshape(groups, len(weight) // groups, -1).swapaxes(1, 2)
    found = np.moveaxis(found, 1, 0).reshape(rows, *places, len(weight))
    return np.moveaxis(found, -1, 1).transpose(np.argsort(dimension_numbers.out_spec))


def windowed(reduce: Callable, empty: Callable) -> Callable:
    """A reduction of windows; ``empty`` gives what padding holds, by the dtype."""

    def reduced(
        x: Any,
        *,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Sequence,
        base_dilation: Sequence[int],
        window_dilation: Sequence[int],
    ) -> Any:
        spread = _spread(x, padding, base_dilation, empty(x.dtype))
        sizes = [(n - 1) * s + 1 for n, s in zip(window_dimensions, window_dilation, strict=True)]
        windows = sliding_window_view(spread, sizes)
        steps = [slice(None, None, step) for step in (*window_strides, *window_dilation)]
        return reduce(windows[tuple(steps)], tuple(range(x.ndim, 2 * x.ndim)))

    return reduced


class Axes(NamedTuple):
    """Of an array, those of which a window has one element, those that indices are for, and those
    of a batch, with theirs in the indices."""

    single: Sequence[int]
    named: Sequence[int]
    batch: Sequence[int]
    of_batch: Sequence[int]


def _places(
    shape: Sequence[int], indices: Any, sizes: Sequence[int], axes: Axes, mode: Any
) -> tuple[list[Any], Any]:
    """Where the elements of windows lie by axis, and which windows are inside of the array."""
    starts, most = indices.astype(int), np.array([shape[i] - sizes[i] for i in axes.named], int)
    if mode == GatherScatterMode.CLIP:
        starts = np.clip(starts, 0, most)
    inside = ((starts >= 0) & (starts <= most)).all(-1)
    grid = np.indices(inside.shape, sparse=True)
    first = dict(zip(axes.named, np.moveaxis(starts, -1, 0), strict=True))
    first |= {axis: grid[its] for axis, its in zip(axes.batch, axes.of_batch, strict=True)}
    wide = [axis for axis in range(len(shape)) if axis not in (*axes.single, *axes.batch)]
    within = dict(zip(wide, np.indices([sizes[axis] for axis in wide], sparse=True), strict=True))

    def before_windows(array: Any) -> Any:
        return np.reshape(array, (*np.shape(array), *[1] * len(wide)))

    places = [
        before_windows(first.get(axis, 0)) + within.get(axis, 0) for axis in range(len(shape))
    ]
    return places, before_windows(inside)


def gather(
    x: Any,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Any:
    names = dimension_numbers
    axes = Axes(
        *(names.collapsed_slice_dims, names.start_index_map),
        *(names.operand_batching_dims, names.start_indices_batching_dims),
    )
    places, inside = _places(x.shape, indices, slice_sizes, axes, mode)
    inside, *places = np.broadcast_arrays(inside, *places)
    found = x[tuple(np.clip(at, 0, size - 1) for at, size in zip(places, x.shape, strict=True))]
    if mode == GatherScatterMode.FILL_OR_DROP:
        found = np.where(inside, found, _outside(x.dtype) if fill_value is None else fill_value)
    windows = range(found.ndim - len(names.offset_dims), found.ndim)
    return np.moveaxis(found, windows, names.offset_dims)


def _outside(dtype: np.dtype) -> Any:
    return {"f": np.nan, "b": True}.get(dtype.kind) or getattr(
        np.iinfo(dtype), "min" if dtype.kind == "i" else "max"
    )


def scattered(change: Callable) -> Callable:
    """An array in which ``change(array, places, numbers)`` puts updates where indices say."""

    def scatter(
        x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any, **_: Any
    ) -> Any:
        names = dimension_numbers
        axes = Axes(
            *(names.inserted_window_dims, names.scatter_dims_to_operand_dims),
            *(names.operand_batching_dims, names.scatter_indices_batching_dims),
        )
        wide = [axis for axis in range(x.ndim) if axis not in (*axes.single, *axes.batch)]
        sizes = np.ones(x.ndim, int)
        sizes[wide] = [updates.shape[axis] for axis in names.update_window_dims]
        places, inside = _places(x.shape, indices, sizes, axes, mode)
        ends = range(updates.ndim - len(wide), updates.ndim)
        updates = np.moveaxis(updates, names.update_window_dims, ends)
        inside, *places = np.broadcast_arrays(inside, *places)
        found = x.copy()
        change(found, tuple(place[inside] for place in places), updates[inside])
        return found

    return scatter


def _least(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min


def broadcast(x: Any, *, shape: Sequence, broadcast_dimensions: Sequence, **_: Any) -> Any:
    sizes = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, np.shape(x), strict=True):
        sizes[axis] = size
    return np.broadcast_to(np.reshape(x, sizes), shape)


def product(x: Any, y: Any, *, dimension_numbers: Any, **_: Any) -> Any:
    """Batches of matrix products: the axes [batch, kept, summed] and [batch, summed, kept]."""
    summed, batch = dimension_numbers
    kept = [
        [axis for axis in range(part.ndim) if axis not in (*summed[i], *batch[i])]
        for i, part in enumerate((x, y))
    ]
    sizes = [x.shape[axis] for axis in batch[0]]
    count = int(np.prod([x.shape[axis] for axis in summed[0]]))
    ours, theirs = (
        [part.shape[axis] for axis in axes] for part, axes in zip((x, y), kept, strict=True)
    )
    left = x.transpose(*batch[0], *kept[0], *summed[0]).reshape([*sizes, math.prod(ours), count])
    right = y.transpose(*batch[1], *summed[1], *kept[1]).reshape([*sizes, count, math.prod(theirs)])
    return np.matmul(left, right).reshape([*sizes, *ours, *theirs])


def cut(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * x.ndim
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def iota(*, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> Any:
    row = np.arange(shape[dimension], dtype=dtype)
    return broadcast(row, shape=shape, broadcast_dimensions=[dimension])


def part_at(x: Any, starts: Sequence, sizes: Sequence[int]) -> tuple:
    """Where a part of some sizes begins and ends, moved to where it is inside."""
    limits = zip(starts, sizes, x.shape, strict=True)
    firsts = [min(max(int(start), 0), most - size) for start, size, most in limits]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def updated(x: Any, part: Any, *starts: Any) -> Any:
    found = x.copy()
    found[part_at(x, starts, part.shape)] = part
    return found


ARRAY_PRIMITIVES: dict[str, Callable] = {
    "conv_general_dilated": convolution,
    "gather": gather,
    "pad": pad,
    "reduce_window_max": windowed(np.max, _least),
    "reduce_window_sum": windowed(np.sum, lambda dtype: 0),
    "scatter": scattered(lambda x, places, numbers: x.__setitem__(places, numbers)),
    "scatter-add": scattered(np.add.at),
    "split": split,
}
