"""Rules of slices, reversals, repetitions and indices."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.operations import shapes
from moment_calculus.operations.elementwise.choices import where
from moment_calculus.operations.shapes.indexing import ALL, index, index_axes, require_certain, take
from moment_calculus.operations.shapes.indexing import gather as gather_along
from moment_calculus.values import Value
from numpyro_moments.rules.shapes.gathering import Layout
from numpyro_moments.rules.table import moment_rule


@moment_rule("slice")
def slice_(x: Value, *, start_indices: Any, limit_indices: Any, strides: Any) -> Value:
    """Serve ``x[a:b:c]``."""
    strides = strides or (1,) * len(x.shape)
    limits = zip(start_indices, limit_indices, strides, x.shape, strict=True)
    return index(x, tuple(ALL if s[:3] == (0, s[3], 1) else slice(*s[:3]) for s in limits))


@moment_rule("rev")
def rev(x: Value, *, dimensions: Any) -> Value:
    """Serve ``jnp.flip``."""
    for axis in dimensions:
        x = take(x, slice(None, None, -1), axis)
    return x


@moment_rule("tile")
def tile(x: Value, *, reps: Any) -> Value:
    """Serve ``jnp.tile``."""
    for axis, count in enumerate(reps):
        if count != 1:
            places = np.tile(np.arange(x.shape[axis]), count)
            x = shapes.move_axis(index_axes(x, {axis: places}), 0, axis)
    return x


@moment_rule("dynamic_slice", numbers=False)
def dynamic_slice(x: Any, *starts: Any, slice_sizes: Any) -> Value:
    """Serve ``jax.lax.dynamic_slice`` and ``x[i]`` with certain indices, known or not."""
    require_certain(*starts)
    for axis, (start, size) in enumerate(zip(starts, slice_sizes, strict=True)):
        if size != x.shape[axis]:
            x = _window(x, start, size, axis)
    return x


def _window(x: Any, start: Any, size: int, axis: int) -> Any:
    if is_known(start):
        first = min(max(int(start), 0), x.shape[axis] - size)
        return take(x, slice(first, first + size), axis)
    places = jnp.clip(start, 0, x.shape[axis] - size) + jnp.arange(size)
    return shapes.move_axis(index_axes(x, {axis: places}, distinct=True), 0, axis)


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
    require_certain(indices)
    indices = np.asarray(indices) if is_known(indices) else indices
    layout = Layout.of(dimension_numbers, x.shape, tuple(indices.shape), tuple(slice_sizes))
    places, inside = layout.places(indices)
    axes = list(places)
    along = [axis for axis in axes if axis not in layout.batching]
    if layout.batching and len(along) == 1:
        result = _along(x, places, along[0], layout)
    else:
        distinct = unique_indices or _is_distinct(places, x.shape)
        picked = index_axes(x, places, distinct=distinct) if places else _repeated(x, layout)
        result = shapes.permute(picked, layout.order())
    if mode != jax.lax.GatherScatterMode.FILL_OR_DROP or (is_known(inside) and np.all(inside)):
        return result
    filling = jnp.nan if fill_value is None else fill_value
    return where(layout.aligned(inside), result, filling)


def _repeated(x: Value, layout: Layout) -> Value:
    """Return the value for every element of the batch of indices, which index no axis."""
    shape = (*layout.batch, *x.shape)
    return shapes.broadcast(shapes.reshape(x, (1,) * len(layout.batch) + tuple(x.shape)), shape)


def _along(x: Value, places: Any, axis: int, layout: Layout) -> Value:
    """Index one axis, with different indices for the elements of other axes."""
    lines, rest = layout.lines(places[axis], axis)
    flat = lines.reshape((*lines.shape[: len(x.shape) - 1], -1))
    order = [*range(axis), len(x.shape) - 1, *range(axis, len(x.shape) - 1)]
    chosen = flat.transpose(order)
    wide = tuple(chosen.shape[axis] if i == axis else n for i, n in enumerate(x.shape))
    result = gather_along(x, jnp.broadcast_to(chosen, wide), axis)
    split = (*wide[:axis], *rest, *wide[axis + 1 :])
    return shapes.permute(shapes.reshape(result, split), layout.order_along(axis))


def is_known(array: Any) -> bool:
    """Return whether the numbers of an array are known when the program is traced."""
    return not is_traced(array)


def _is_distinct(places: Any, shape: tuple[int, ...]) -> bool:
    """Return whether known indices choose no element twice."""
    if not all(map(is_known, places.values())):
        return math.prod(next(iter(places.values())).shape) <= 1
    sizes = [shape[axis] for axis in places]
    flat = np.ravel_multi_index([np.asarray(p) for p in places.values()], sizes)
    return len(np.unique(flat)) == flat.size
