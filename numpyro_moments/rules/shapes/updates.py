"""Rules of updates ``x.at[...]``: arrays with some elements replaced or added to."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations import shapes
from moment_calculus.operations.elementwise.arithmetic import add, is_value
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.indexing import require_certain, take
from moment_calculus.values import Value
from numpyro_moments.rules.shapes.indexing import is_known
from numpyro_moments.rules.table import moment_rule


@moment_rule("dynamic_update_slice", numbers=False)
def dynamic_update_slice(x: Any, update: Any, *starts: Any) -> Value:
    """Serve ``jax.lax.dynamic_update_slice`` at certain places."""
    require_certain(*starts)
    _require_known(starts, (x, update))
    limits = zip(starts, update.shape, x.shape, strict=True)
    return _replaced(x, update, [min(max(int(s), 0), n - k) for s, k, n in limits])


def _require_known(places: Any, operands: Any) -> None:
    if not all(map(is_known, places)):
        raise UnsupportedMoments(
            "an update at a place that is not known when the program is traced",
            sites=frozenset().union(*(getattr(o, "sites", ()) for o in operands)),
            remedy="update at a fixed place, or choose by a certain mask with jnp.where" + OR_DRAW,
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
    return x if (start, end) == (0, x.shape[axis]) else take(x, slice(start, end), axis)


def _joined(parts: list[Any], axis: int) -> Any:
    if not any(map(is_value, parts)):
        return jnp.concatenate(parts, axis)
    return parts[0] if len(parts) == 1 else concatenate(parts, axis - len(parts[0].shape))


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
    require_certain(indices)
    _require_known([indices], (x, updates))
    if len(indices.shape) == 1:
        return _window(x, np.asarray(indices), updates, dimension_numbers, adds)
    return _rows(x, np.asarray(indices), updates, dimension_numbers, adds)


def _window(x: Any, index: Any, updates: Any, numbers: Any, adds: bool) -> Value:
    """Update one slice of the array."""
    inserted = numbers.inserted_window_dims
    sizes = iter(updates.shape)
    wide = [1 if axis in inserted else next(sizes) for axis in range(len(x.shape))]
    update = shapes.reshape(updates, tuple(wide))
    starts = [0] * len(x.shape)
    for place, axis in zip(index, numbers.scatter_dims_to_operand_dims, strict=True):
        starts[axis] = int(place)
    if any(s < 0 or s + k > n for s, k, n in zip(starts, wide, x.shape, strict=True)):
        return x  # JAX drops what is out of bounds
    if not adds:
        return _replaced(x, update, starts)
    part = x
    for axis, (start, size) in enumerate(zip(starts, wide, strict=True)):
        part = _slice(part, start, start + size, axis)
    return _replaced(x, _sum(part, update), starts)


def _sum(x: Any, y: Any) -> Any:
    return add(x, y) if is_value(x) or is_value(y) else x + y


def _rows(x: Any, indices: Any, updates: Any, numbers: Any, adds: bool) -> Value:
    """Update whole rows of one axis, each at its own index."""
    axes = tuple(numbers.scatter_dims_to_operand_dims)
    simple = axes == tuple(numbers.inserted_window_dims) and len(axes) == 1
    if not simple or numbers.operand_batching_dims or indices.ndim != 2:
        raise _too_general((x, updates))
    axis, places = int(axes[0]), indices[:, 0]
    count = x.shape[axis]
    kept = (places >= 0) & (places < count)
    if adds and len(np.unique(places[kept])) != kept.sum():
        raise _too_general((x, updates))
    # The rows of the update are on its only axis that is not a window axis.
    (own,) = (i for i in range(len(updates.shape)) if i not in numbers.update_window_dims)
    rows = shapes.move_axis(updates, own, axis)
    origin = np.arange(count)
    origin[places[kept]] = count + np.flatnonzero(kept)
    if not adds:
        return _chosen(_joined([x, rows], axis), origin, axis)
    nothing = jnp.zeros(x.shape, (rows.at_mean if is_value(rows) else rows).dtype)
    return _sum(x, _chosen(_joined([nothing, rows], axis), origin, axis))


def _chosen(joined: Any, places: Any, axis: int) -> Any:
    from moment_calculus.operations.shapes.indexing import index_axes

    return shapes.move_axis(index_axes(joined, {axis: jnp.asarray(places)}, distinct=True), 0, axis)


def _too_general(operands: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        "an update of single elements, or of the same ones more than once",
        sites=frozenset().union(*(getattr(o, "sites", ()) for o in operands)),
        remedy="update a slice, or different rows of one axis; choose elements by a certain mask "
        "with jnp.where, and sum groups by a product with a certain matrix of zeros and ones"
        + OR_DRAW,
    )
