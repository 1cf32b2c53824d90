"""Rules of slices, reversals, indices and updates ``x.at[...]``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Deferred, Value
from numpyro_moments.rules.table import moment_rule

MOST_STACKED = 16  # elements of a vector that are known one by one after an update


@moment_rule("slice")
def slice_(x: Value, *, start_indices: Any, limit_indices: Any, strides: Any) -> Value:
    """Serve ``x[a:b:c]``."""
    strides = strides or (1,) * len(x.shape)
    limits = zip(start_indices, limit_indices, strides, x.shape, strict=True)
    return ops.index(x, tuple(ops.ALL if s[:3] == (0, s[3], 1) else slice(*s[:3]) for s in limits))


@moment_rule("rev")
def rev(x: Value, *, dimensions: Any) -> Value:
    """Serve ``jnp.flip``."""
    for axis in dimensions:
        x = ops.take(x, slice(None, None, -1), axis)
    return x


@moment_rule("tile")
def tile(x: Value, *, reps: Any) -> Value:
    """Serve ``jnp.tile``."""
    for axis, count in enumerate(reps):
        if count != 1:
            indices = np.tile(np.arange(x.shape[axis]), count)
            x = ops.move_axis(ops.index_axes(x, {axis: indices}), 0, axis)
    return x


@moment_rule("dynamic_slice", numbers=False)
def dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Value:
    """Serve ``jax.lax.dynamic_slice`` and ``x[i]`` with certain indices, known or not."""
    ops.require_certain(*starts)
    for axis, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        if size != x.shape[axis]:
            x = _window(x, start, size, axis)
    return x


def _window(x: Any, start: Any, size: int, axis: int) -> Any:
    if is_known(start):
        first = min(max(int(start), 0), x.shape[axis] - size)
        return ops.take(x, slice(first, first + size), axis)
    rows = jnp.clip(start, 0, x.shape[axis] - size) + jnp.arange(size)
    return ops.move_axis(ops.index_axes(x, {axis: rows}, distinct=True), 0, axis)


class Columns(NamedTuple):
    """An index array, by the columns of which it was concatenated."""

    parts: tuple[Any, ...]  # of one component each
    seen: dict[Any, Any]  # places by the column that they were computed from

    @classmethod
    def of(cls, array: Any) -> Columns:
        """Return the columns of an array."""
        array = _known(array)
        return cls(tuple(array[..., i : i + 1] for i in range(array.shape[-1])), {})

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""
        return (*self.parts[0].shape[:-1], len(self.parts))

    def column(self, component: int) -> Any:
        """Return one component of every index."""
        return _known(self.parts[component])[..., 0]

    def within(self, component: int, last: int, rank: int) -> tuple[Any, Any]:
        """Return a component within bounds, with axes of size one added, and whether it was.

        Both are the same objects for the same column, so that places can be compared.
        """
        key = id(self.parts[component]), last, rank
        if key not in self.seen:
            start = self.column(component)
            xp = np if isinstance(start, np.ndarray) else jnp
            clipped = xp.clip(start, 0, last).reshape(start.shape + (1,) * rank)
            self.seen[key] = self.parts[component], clipped, (start >= 0) & (start <= last)
        return self.seen[key][1:]


def _broadcast(array: Any, shape: tuple[int, ...]) -> Any:
    if array.shape == shape:
        return array
    return (np if isinstance(array, np.ndarray) else jnp).broadcast_to(array, shape)


def _known(array: Any) -> Any:
    return np.asarray(array) if is_known(array) else array


@moment_rule("gather", numbers=False)
def gather(
    x: Value,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Any,
    unique_indices: bool,
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Value:
    """Serve ``x[array]``, ``jnp.take`` and ``jnp.take_along_axis`` with certain indices."""
    ops.require_certain(indices)
    indices = indices if isinstance(indices, Columns) else Columns.of(indices)
    layout = Layout.of(dimension_numbers, x.shape, tuple(indices.shape), tuple(slice_sizes))
    index_arrays, inside = layout.index_arrays(indices)
    axes = list(index_arrays)
    along = [axis for axis in axes if axis not in layout.batching]
    if layout.batching and len(along) == 1:
        result = _along(x, index_arrays, along[0], layout)
    else:
        distinct = unique_indices or _is_distinct(index_arrays, x.shape)
        picked = (
            ops.index_axes(x, index_arrays, distinct=distinct)
            if index_arrays
            else _repeated(x, layout)
        )
        result = ops.permute(picked, layout.order())
    if mode != jax.lax.GatherScatterMode.FILL_OR_DROP or (is_known(inside) and np.all(inside)):
        return result
    filling = jnp.nan if fill_value is None else fill_value
    return ops.where(layout.aligned(inside), result, filling)


def _repeated(x: Value, layout: Layout) -> Value:
    """Return the value for every element of the batch of indices, which index no axis."""
    shape = (*layout.batch, *x.shape)
    return ops.broadcast(ops.reshape(x, (1,) * len(layout.batch) + tuple(x.shape)), shape)


def _along(x: Value, index_arrays: Any, axis: int, layout: Layout) -> Value:
    """Index one axis, with different indices for the elements of other axes."""
    lines, rest = layout.lines(index_arrays[axis], axis)
    flat = lines.reshape((*lines.shape[: len(x.shape) - 1], -1))
    order = [*range(axis), len(x.shape) - 1, *range(axis, len(x.shape) - 1)]
    chosen = flat.transpose(order)
    wide = tuple(chosen.shape[axis] if i == axis else n for i, n in enumerate(x.shape))
    result = ops.gather(x, jnp.broadcast_to(chosen, wide), axis)
    split = (*wide[:axis], *rest, *wide[axis + 1 :])
    return ops.permute(ops.reshape(result, split), layout.order_along(axis))


def is_known(array: Any) -> bool:
    """Return whether the numbers of an array are known when the program is traced."""
    return not private_apis.is_traced(array)


def _is_distinct(index_arrays: Any, shape: tuple[int, ...]) -> bool:
    """Return whether known indices choose no element twice."""
    if not all(map(is_known, index_arrays.values())):
        return math.prod(next(iter(index_arrays.values())).shape) <= 1
    sizes = [shape[axis] for axis in index_arrays]
    flat = np.ravel_multi_index([np.asarray(p) for p in index_arrays.values()], sizes)
    return len(np.unique(flat)) == flat.size


@dataclass(frozen=True)
class Layout:
    """The axes of a gather."""

    shape: tuple[int, ...]  # of the operand
    batch: tuple[int, ...]  # shape of the indices, without their last axis
    sizes: tuple[int, ...]  # of the slice at every index, along each axis of the operand
    starts: Mapping[int, int]  # by axis of the operand: component of an index where a slice starts
    batching: Mapping[int, int]  # by axis of the operand: batch axis that is iterated with it
    collapsed: tuple[int, ...]  # axes of the operand that the slices, of size one there, leave out
    offsets: tuple[int, ...]  # positions of the axes of the slices in the result

    @classmethod
    def of(cls, numbers: Any, shape: tuple, indices: tuple, sizes: tuple) -> Layout:
        """Read the ``GatherDimensionNumbers``; the other arguments are shapes."""
        pairs = zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True)
        return cls(
            tuple(shape),
            indices[:-1],
            sizes,
            {int(axis): i for i, axis in enumerate(numbers.start_index_map)},
            {int(axis): int(component) for axis, component in pairs},
            tuple(map(int, numbers.collapsed_slice_dims)),
            tuple(map(int, numbers.offset_dims)),
        )

    @property
    def sliced(self) -> list[int]:
        """Return the axes of the operand that the slices have, in order."""
        left_out = (*self.collapsed, *self.batching)
        return [axis for axis in range(len(self.shape)) if axis not in left_out]

    @property
    def whole(self) -> list[int]:
        """Return the axes that the slices have from one end to the other."""
        return [axis for axis in self.sliced if self.sizes[axis] == self.shape[axis]]

    @property
    def windows(self) -> list[int]:
        """Return the axes that the slices have a part of."""
        return [axis for axis in self.sliced if self.sizes[axis] != self.shape[axis]]

    def index_arrays(self, indices: Any) -> tuple[dict[int, Any], Any]:
        """Return index arrays ``batch + windows`` of all axes but the whole ones, within bounds.

        The indices are integers ``batch + [components]``. Booleans ``batch`` that are
        also returned tell whether an index was within bounds.
        """
        wide = self.batch + tuple(self.sizes[axis] for axis in self.windows)
        inside: Any = np.ones(self.batch, bool)
        found = {}
        for axis in range(len(self.shape)):
            if axis in self.batching:
                found[axis] = self._count(len(wide), self.batching[axis], wide)
                continue
            last = self.shape[axis] - self.sizes[axis]
            index_array: Any = np.zeros((), int)
            if axis in self.starts:
                index_array, fits = indices.within(self.starts[axis], last, len(self.windows))
                inside = inside & fits
            if axis not in self.whole:
                if axis in self.windows:
                    dimension = len(self.batch) + self.windows.index(axis)
                    index_array = index_array + self._count(len(wide), dimension, wide)
                found[axis] = _broadcast(index_array, wide)
        return found, inside

    @staticmethod
    def _count(rank: int, axis: int, shape: tuple[int, ...]) -> Any:
        line = np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(rank)])
        return np.broadcast_to(line, shape)

    def order(self) -> list[int]:
        """Return where each axis of the result is among ``batch + windows + whole``."""
        lead = len(self.batch)
        kept = [*self.windows, *self.whole]
        return self._placed(range(lead), [lead + kept.index(axis) for axis in self.sliced])

    def _placed(self, batch: Any, sliced: Any) -> list[int]:
        of_batch, of_slices = iter(batch), iter(sliced)
        rank = len(self.batch) + len(self.offsets)
        return [next(of_slices if i in self.offsets else of_batch) for i in range(rank)]

    def aligned(self, inside: Any) -> Any:
        """Return booleans ``batch``, with axes of size one for those of the slices."""
        return jnp.reshape(inside, self._placed(self.batch, [1] * len(self.offsets)))

    def lines(self, index_array: Any, axis: int) -> tuple[Any, tuple[int, ...]]:
        """Return the index array of one axis if all others are whole or iterated with the batch.

        Its axes are the operand's other axes (of size one for whole ones), then the free
        axes of the batch and the window, whose sizes are also returned.
        """
        others = [other for other in range(len(self.shape)) if other != axis]
        bound = [self.batching[other] for other in others if other in self.batching]
        free = [i for i in range(index_array.ndim) if i not in bound]
        sizes = tuple(index_array.shape[i] for i in free)
        ordered = index_array.transpose(*bound, *free)
        lead = [self.shape[other] if other in self.batching else 1 for other in others]
        return ordered.reshape((*lead, *sizes)), sizes

    def order_along(self, axis: int) -> list[int]:
        """Return where each axis of the result is if free axes replace an axis."""
        inverse = {dimension: other for other, dimension in self.batching.items()}
        free = [i for i in range(len(self.batch)) if i not in inverse]
        count = len(free) + len(self.windows)
        moved = lambda other: other if other < axis else other - 1 + count  # noqa: E731
        batch = [
            moved(inverse[i]) if i in inverse else axis + free.index(i)
            for i in range(len(self.batch))
        ]
        sliced = [axis + len(free) if other == axis else moved(other) for other in self.sliced]
        return self._placed(batch, sliced)


@moment_rule("dynamic_update_slice", numbers=False)
def dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Value:
    """Serve ``jax.lax.dynamic_update_slice`` at certain places."""
    ops.require_certain(*starts)
    _require_known(starts, (x, update))
    limits = zip(starts, update.shape, x.shape, strict=True)
    return _replaced(x, update, [min(max(int(s), 0), n - k) for s, k, n in limits])


def _require_known(starts: Any, operands: Any) -> None:
    if not all(map(is_known, starts)):
        raise errors.UnknownNumbers(
            "an update at a place that is not known when the program is traced",
            sites=errors.sites_of(*operands),
            remedy="update at a fixed place, or choose by a certain mask with jnp.where"
            + errors.OR_DRAW,
        )


def _replaced(x: Any, update: Any, starts: list[int], axis: int = 0) -> Any:
    """Return the array around the update, joined axis by axis."""
    partial = [i for i in range(axis, len(x.shape)) if update.shape[i] != x.shape[i]]
    if not partial:
        return update
    axis = partial[0]
    start, end = starts[axis], starts[axis] + update.shape[axis]
    inner = _replaced(_slice(x, start, end, axis), update, starts, axis + 1)
    edges = (_slice(x, 0, start, axis), inner, _slice(x, end, x.shape[axis], axis))
    return _joined([part for part in edges if part.shape[axis]], axis)


def _slice(x: Any, start: int, end: int, axis: int) -> Any:
    return x if (start, end) == (0, x.shape[axis]) else ops.take(x, slice(start, end), axis)


def _joined(parts: list[Any], axis: int) -> Any:
    if not any(map(ops.is_value, parts)):
        return jnp.concatenate(parts, axis)
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis - len(parts[0].shape))


@moment_rule("scatter", numbers=False)
def scatter(x: Any, indices: Any, updates: Any, **parameters: Any) -> Value:
    """Serve ``x.at[...].set(...)`` at certain places: a slice, or rows of one axis."""
    return _scattered(x, indices, updates, adds=False, **parameters)


@moment_rule("scatter-add", numbers=False)
def scatter_add(x: Any, indices: Any, updates: Any, **parameters: Any) -> Value:
    """Serve ``x.at[...].add(...)`` at certain places without repetition."""
    return _scattered(x, indices, updates, adds=True, **parameters)


def _scattered(
    x: Any, indices: Any, updates: Any, *, adds: bool, dimension_numbers: Any, **_: Any
) -> Value:
    ops.require_certain(indices)
    _require_known([indices], (x, updates))
    if len(indices.shape) == 1:
        return _updated_window(x, np.asarray(indices), updates, dimension_numbers, adds)
    return _rows(x, np.asarray(indices), updates, dimension_numbers, adds)


def _updated_window(x: Any, index: Any, updates: Any, numbers: Any, adds: bool) -> Value:
    """Update one slice of the array."""
    inserted = numbers.inserted_window_dims
    sizes = iter(updates.shape)
    wide = [1 if axis in inserted else next(sizes) for axis in range(len(x.shape))]
    update = ops.reshape(updates, tuple(wide))
    starts = [0] * len(x.shape)
    for component, axis in zip(index, numbers.scatter_dims_to_operand_dims, strict=True):
        starts[axis] = int(component)
    if any(s < 0 or s + k > n for s, k, n in zip(starts, wide, x.shape, strict=True)):
        return x  # JAX drops what is out of bounds
    if adds:
        part = x
        for axis, (start, size) in enumerate(zip(starts, wide, strict=True)):
            part = _slice(part, start, start + size, axis)
        update = _sum(part, update)
    stacked = _stacked_anew(x, update, starts) if len(x.shape) == 1 == wide[0] else None
    return _replaced(x, update, starts) if stacked is None else stacked


def _stacked_anew(x: Any, update: Any, starts: list[int]) -> Value | None:
    """Return a short vector with another element, so that its functions stay functions."""
    known = ops.unstacked(x) if ops.is_value(x) else isinstance(update, Deferred)
    if not known or x.shape[0] > MOST_STACKED:
        return None
    elements = [ops.index(x, index) for index in range(x.shape[0])]
    elements[starts[0]] = ops.reshape(update, ())
    return ops.stack(elements, -1) if any(map(ops.is_value, elements)) else None


def _sum(x: Any, y: Any) -> Any:
    return ops.add(x, y) if ops.is_value(x) or ops.is_value(y) else x + y


def _rows(x: Any, indices: Any, updates: Any, numbers: Any, adds: bool) -> Value:
    """Update whole rows of one axis, each at its own index."""
    axes = tuple(numbers.scatter_dims_to_operand_dims)
    inserted = axes == tuple(numbers.inserted_window_dims) and not numbers.operand_batching_dims
    if inserted and axes == tuple(range(len(x.shape))) and not adds:
        return _elements(x, indices, updates)
    simple = inserted and len(axes) == 1
    if not simple or indices.ndim != 2:
        raise _too_general((x, updates))
    axis, positions = int(axes[0]), indices[:, 0]
    count = x.shape[axis]
    kept = (positions >= 0) & (positions < count)
    if adds and len(np.unique(positions[kept])) != kept.sum():
        raise _too_general((x, updates))
    # The rows of the update are on its only axis that is not a window axis.
    (own,) = (i for i in range(len(updates.shape)) if i not in numbers.update_window_dims)
    rows = ops.move_axis(updates, own, axis)
    origin = np.arange(count)
    origin[positions[kept]] = count + np.flatnonzero(kept)
    if not adds:
        return ops.with_rows(x, rows, jnp.asarray(origin), axis)
    nothing = jnp.zeros(x.shape, (rows.at_mean if ops.is_value(rows) else rows).dtype)
    return _sum(x, _with_certain_rows(nothing, rows, jnp.asarray(origin), axis))


def _with_certain_rows(x: Any, rows: Any, origin: Any, axis: int) -> Any:
    if ops.is_value(rows):
        return ops.with_rows(x, rows, origin, axis)
    return jnp.take(jnp.concatenate([x, rows], axis), origin, axis)


def _elements(x: Any, indices: Any, updates: Any) -> Any:
    """Set single elements, each at its own index [..., axes]."""
    size = math.prod(x.shape)
    inside = ((indices >= 0) & (indices < np.array(x.shape))).all(-1).reshape(-1)
    elements = np.ravel_multi_index(np.moveaxis(indices, -1, 0), x.shape, mode="clip").reshape(-1)
    origin = np.arange(size)
    origin[elements[inside]] = size + np.flatnonzero(inside)
    flat, values = ops.reshape(x, (size,)), ops.reshape(updates, (len(elements),))
    return ops.reshape(ops.with_rows(flat, values, jnp.asarray(origin), 0), x.shape)


def _too_general(operands: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        "an update of single elements, or of the same ones more than once",
        sites=errors.sites_of(*operands),
        remedy="update a slice, or different rows of one axis; choose elements by a certain mask "
        "with jnp.where, and sum groups by a product with a certain matrix of zeros and ones"
        + errors.OR_DRAW,
    )
