"""Indexing of live values by keys, or by index arrays on some axes as gather primitives do.

Slices of the feature axis keep their exact joint covariance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.combinators import value_range
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.shapes.moves import (
    Permuted,
    Rearranged,
    may_lose_dependence,
    move_axis,
    moved,
    permute,
    without_covariance,
)
from moment_calculus.operations.shapes.reshaping import (
    Expanded,
    Reshaped,
    broadcast,
    flattened,
    reshape,
)
from moment_calculus.operations.shapes.selection import (
    Indexed,
    index_features,
    is_basic,
    is_index,
    is_integer,
    rank_of,
)
from moment_calculus.values import Deferred, Gaussian, Ties, Value, features_last
from moment_calculus.values.spread import (
    batch_shape,
    broadcast_shape,
    none_or_all,
    support_of_index,
)

__all__ = [
    "ALL",
    "gather",
    "index",
    "index_axes",
    "require_certain",
    "split",
    "take",
    "unstack",
    "unstacked",
]

ALL = slice(None)


STACKED = "stacked"


def unstacked(value: Any) -> tuple[Any, ...] | None:
    """Return what was stacked along the trailing axis of a value; None of any other value."""
    if not isinstance(value, Gaussian):
        return None
    known = value.memo.arrays
    if STACKED not in known and isinstance(value.step, Expanded | Reshaped):
        # A distribution expands what it stacked, as a Beta does with its concentrations.
        source, shape = value.step.source, value.shape
        parts = unstacked(source)
        fits = isinstance(value.step, Expanded) or _is_unsqueezed(source.shape, shape)
        if parts is not None and len(parts) == shape[-1] and fits:
            known[STACKED] = tuple(broadcast(part, shape[:-1]) for part in parts)
    return known.get(STACKED)


def _is_unsqueezed(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Whether a shape has only got leading axes of size one."""
    extra = len(wide) - len(shape)
    return extra >= 0 and (1,) * extra + tuple(shape) == tuple(wide)


def index(value: Any, key: Any) -> Any:
    """Index a value or array as the framework indexes an array; raise if the key is random.

    The covariance of features, and that of each element of the batch, is kept. Dependence
    between different elements of the batch is tracked only for equal keys, or index
    arrays into independent elements.
    """
    keys = _as_tuple(key)
    require_certain(*keys)
    if not hasattr(value, "sites"):
        return value[key]
    if isinstance(value, Deferred):
        return value.moved(lambda v: index(v, key) if hasattr(v, "sites") else v[key])
    if (part := _known_part(value, keys)) is not None:
        return part
    if (whole := _index_vector(value, keys)) is not None:
        return whole
    if (arrays := [key for key in keys if is_index(key)]) and all(
        is_index(key) or is_integer(key) for key in keys
    ):
        zero = 0 * arrays[0]
        return index_axes(value, {axis: key + zero for axis, key in enumerate(keys)})
    if isinstance(value.step, Permuted) and _keeps_axes(keys):
        return _index_permuted(value.step, keys)
    if value.axis not in (-1, None):
        shape = tuple(value.mean[key].shape)
        return (
            _index_inner_features(value, keys, shape)
            if _keeps_places(keys)
            else _index_variances(value, key)
        )
    return _index_trailing(value, key, keys)


def _known_part(value: Gaussian, keys: tuple) -> Any:
    """Return what a value was stacked or reshaped from, if a key takes just that; else None."""
    step = value.step
    if isinstance(step, Reshaped) and _unsqueezes(step.source.shape, value.shape, keys):
        return step.source
    return _stacked_part(value, keys)


def _stacked_part(value: Gaussian, keys: tuple) -> Any:
    """Return the value at one place of a stack, as it was; None for other keys and values."""
    parts = unstacked(value)
    if parts is None or any(key is None for key in keys):
        return None
    *others, last = _expanded(list(keys), len(value.shape))
    if not all(map(_selects_all, others)):
        return None
    if isinstance(last, slice):
        chosen = parts[last]
        return reshape(chosen[0], (*value.shape[:-1], 1)) if len(chosen) == 1 else None
    return parts[last] if is_integer(last) else None


def _unsqueezes(shape: tuple[int, ...], wide: tuple[int, ...], keys: tuple) -> bool:
    """Whether a key removes just the axes of size one that a wide shape has more than a shape."""
    if any(key is None for key in keys):
        return False
    pairs = list(zip(_expanded(list(keys), len(wide)), wide, strict=True))
    if not all(_selects_all(key) or (is_integer(key) and size == 1) for key, size in pairs):
        return False
    return tuple(size for key, size in pairs if _selects_all(key)) == shape


def _keeps_axes(keys: tuple) -> bool:
    """Whether the axes of an index are its slices, and one array of one axis, in order."""
    arrays = [key for key in keys if is_index(key)]
    if not all(is_index(key) or is_integer(key) or isinstance(key, slice) for key in keys):
        return False
    return not arrays or (len(arrays) == 1 == rank_of(arrays[0]) and not any(map(is_integer, keys)))


def _index_permuted(step: Permuted, keys: tuple) -> Any:
    """Index the source, which knows more of its elements, and permute the axes that stay."""
    inner: list[Any] = [ALL] * len(step.order)
    for old, key in zip(step.order, keys, strict=False):
        inner[old] = key
    rest = [old for old in step.order if not is_integer(inner[old])]
    result = index(step.source, tuple(inner))
    return permute(result, tuple(sorted(rest).index(old) for old in rest))


def _index_vector(value: Gaussian, keys: tuple) -> Gaussian | None:
    """Index an array whose elements are all dependent; return None for other values."""
    if len(value.shape) < 2 or value.independent or not all(map(is_basic, keys)):
        return None
    vector = flattened(value)
    if vector is None:
        return None
    numbers = np.arange(math.prod(value.shape)).reshape(value.shape)[keys]
    return reshape(index_features(vector, numbers.reshape(-1), distinct=True), numbers.shape)


def require_certain(*keys: Any) -> None:
    """Raise UnsupportedMoments if one of the indices is random."""
    for key in keys:
        if hasattr(key, "sites"):
            raise UnsupportedMoments(
                "an index that depends on a random value",
                sites=key.sites,
                remedy="index with certain integers, slices or masks" + OR_DRAW,
            )


def _index_trailing(value: Gaussian, key: Any, keys: tuple) -> Gaussian:
    """Index a value whose feature axis, if it has one, is the trailing one."""
    basic = all(map(is_basic, keys))
    if not (basic or all(map(_is_plain_array, keys))):
        return _index_variances(value, key)
    wide = _expanded([k for k in keys if k is not None], len(value.shape))
    if value.axis is None:
        result = index_batch(value, tuple(wide))
    elif _selects_all(wide[-1]):
        result = index_batch(value, tuple(wide[:-1]))
    elif all(map(_selects_all, wide[:-1])) and rank_of(wide[-1]) <= 1:
        result = index_features(value, wide[-1])
    elif basic or isinstance(wide[-1], slice):
        result = index_batch(index_features(value, wide[-1]), tuple(wide[:-1]))
    else:
        return _index_variances(value, key)
    added = any(k is None for k in keys)
    return reshape(result, tuple(value.mean[key].shape)) if added else result


def _as_tuple(key: Any) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def _is_plain_array(key: Any) -> bool:
    """Whether a key is neither None nor a single boolean, both of which add an axis."""
    truth = "bool" in str(getattr(key, "dtype", type(key)))
    return key is not None and not (truth and not len(getattr(key, "shape", ())))


def _expanded(keys: list, rank: int) -> list:
    """Replace an Ellipsis, or the missing end, by full slices."""
    used = sum(_axes_of(k) for k in keys if k is not Ellipsis)
    ellipsis = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    return keys[:ellipsis] + [ALL] * (rank - used) + keys[ellipsis + 1 :]


def _axes_of(key: Any) -> int:
    """Return how many axes a key consumes: a boolean mask consumes as many as it has."""
    return len(key.shape) if "bool" in str(getattr(key, "dtype", "")) else 1


def _selects_all(key: Any) -> bool:
    return isinstance(key, slice) and key == ALL


def _keeps_places(keys: tuple) -> bool:
    """Whether every axis that a key leaves stays between its neighbours."""
    arrays = [key for key in keys if not is_basic(key)]
    if not arrays:
        return True
    integers = any(map(is_integer, keys))
    return len(arrays) == 1 and _is_plain_array(arrays[0]) and rank_of(arrays[0]) == 1 != integers


def _index_inner_features(value: Gaussian, keys: tuple, shape: tuple[int, ...]) -> Gaussian:
    """Index a value whose feature axis is not the trailing one, to a result of a given shape."""
    rank = len(value.shape)
    axis = rank + (value.axis or 0)
    wide = _expanded([key for key in keys if key is not None], rank)
    features, before = wide.pop(axis), sum(not is_integer(key) for key in wide[:axis])
    last = move_axis(value, axis, rank - 1)
    chosen = last if _selects_all(features) else index_features(last, features)
    result = index_batch(chosen, tuple(wide))
    if not is_integer(features):
        result = move_axis(result, len(result.shape) - 1, before)
    return reshape(result, shape)


def index_batch(value: Gaussian, keys: tuple, *, distinct: bool = False) -> Gaussian:
    """Index leading axes of the batch; the feature axis is the trailing one, or there is none.

    ``distinct`` says that index arrays are known to choose no element twice.
    """
    if all(map(_selects_all, keys)):
        return value
    distinct = distinct or all(map(is_basic, keys))
    leading = value.axis is None or len(value.shape) + value.axis > 0
    return moved(
        Indexed(value, keys),
        value.axis,
        dense=value.has_covariance,
        joint=value.axis is not None,
        ties=value.ties if distinct else Ties.ALL,
        support=support_of_index(value, keys[0]) if leading else None,
    )


def _index_variances(value: Gaussian, key: Any) -> Gaussian:
    distinct = all(map(is_basic, _as_tuple(key)))
    what = "an index of features and batch together, unlike x[i][..., j],"
    return _select_variances(value, lambda array: array[key], what, distinct)


def _select_variances(
    value: Gaussian, move: Callable[[Array], Array], what: str, distinct: bool
) -> Gaussian:
    """Select from features and batch together and keep variances only, with a warning."""
    # Independent components lose nothing; where one may occur twice they become scalars.
    scalars = not move(value.mean).shape or (value.independent and not distinct)
    ties = none_or_all(value.independent and distinct)
    if math.prod(move(value.mean).shape) > 1 and _loses_dependence(value):
        value = without_covariance(value, what)
    return moved(Rearranged(value, move), None if scalars else -1, ties=ties)


def _loses_dependence(value: Gaussian) -> bool:
    """Whether a covariance is lost that the forward sweep or a sweep backwards has to know of."""
    backward = value.propagation.is_backward and not value.independent
    return backward or may_lose_dependence(value)


def unstack(value: Value, axis: int) -> tuple[Value, ...]:
    """Return the slices along an axis, in order."""
    lead = (ALL,) * axis
    return tuple(index(value, (*lead, i)) for i in range(value.shape[axis]))


def split(value: Value, sizes: Sequence[int], axis: int) -> tuple[Value, ...]:
    """Return consecutive slices of some sizes along an axis."""
    ends = itertools.accumulate(sizes)
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(take(value, part, axis) for part in parts)


def take(value: Any, chosen: Any, axis: int) -> Any:
    """Select elements along one axis by integers [n] or a slice."""
    return index(value, ((ALL,) * axis + (chosen,)) if axis else chosen)


@dataclass(frozen=True, eq=False)
class _GatheredFeatures(Rearranged):
    """Step that selects features for every element of the batch."""

    indices: Array  # integers of the source's shape, except along the feature axis

    def covariance(self) -> Array:
        return self.through(0, self.through(0, self.source.joint_covariance()).mT)

    def through(self, input_index: int, cross: Array) -> Array:
        xp, axis = namespace(cross), self.source.axis
        last, batch = features_last(self.indices, axis), batch_shape(self.source.shape, axis)
        # The other value may have more axes.
        batch = broadcast_shape(batch, tuple(cross.shape[:-2]))
        wide_indices = xp.broadcast_to(last[..., None], (*batch, last.shape[-1], cross.shape[-1]))
        wide = xp.broadcast_to(cross, (*batch, *cross.shape[-2:]))
        return xp.take_along_axis(wide, wide_indices, axis=-2)


def gather(value: Any, indices: Array, axis: int) -> Any:
    """Select elements along one axis, for every element of the other axes.

    ``indices`` holds non-negative integers of the value's shape, except along the axis.
    Along the feature axis the joint covariance is kept; along others it is dropped, with
    a warning.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: gather(v, indices, axis))
    select = lambda array: namespace(array).take_along_axis(array, indices, axis=axis)  # noqa: E731
    if not isinstance(value, Gaussian):
        return select(value)
    if value.axis is not None and axis == len(value.shape) + value.axis:
        full, ties = value.propagation.has_full_covariance, max(value.ties, Ties.FEATURES)
        step = _GatheredFeatures(value, select, indices)
        return moved(step, value.axis, dense=full, joint=True, ties=ties)
    if value.axis is not None and _loses_dependence(value):
        value = without_covariance(value, "a choice of elements of the batch for every feature")
    return moved(Rearranged(value, select), value.axis)


def index_axes(value: Any, indices: Mapping[int, Array], *, distinct: bool = False) -> Any:
    """Select elements at index arrays of some axes; the other axes stay whole and come last.

    ``indices`` maps non-negative axes to integer arrays of one shape. Dependence is kept
    where only features or only elements of the batch are selected, or one known feature,
    as in ``x[rows, 0]``.
    """
    axes = sorted(indices)
    if isinstance(value, Deferred):
        return value.moved(lambda v: index_axes(v, indices, distinct=distinct))
    if not isinstance(value, Gaussian):
        return _index_array(value, axes, indices)
    if isinstance(value.step, Permuted):
        return _of_permuted(value.step, axes, indices, distinct)
    features = None if value.axis is None else len(value.shape) + value.axis
    if features not in axes:
        return _index_batch_axes(value, axes, indices, features, distinct)
    if axes == [features]:
        return _index_feature_axis(value, indices[features], distinct)
    return _index_features_and_batch(value, axes, indices, distinct)


def _of_permuted(
    step: Permuted, axes: Sequence[int], indices: Mapping[int, Array], distinct: bool
) -> Any:
    """Index the source, which knows more of its elements, and permute the axes that stay."""
    inner = {step.order[axis]: index for axis, index in indices.items()}
    rest = [old for axis, old in enumerate(step.order) if axis not in axes]
    result = index_axes(step.source, inner, distinct=distinct)
    lead = len(result.shape) - len(rest)
    return permute(result, (*range(lead), *(lead + sorted(rest).index(old) for old in rest)))


def _index_array(array: Array, axes: Sequence[int], indices: Mapping[int, Array]) -> Array:
    rest = [axis for axis in range(len(array.shape)) if axis not in axes]
    front = namespace(array).permute_dims(array, (*axes, *rest))
    return front[tuple(indices[axis] for axis in axes)]


def _index_batch_axes(
    value: Gaussian, axes: list[int], indices: Mapping[int, Array], features: Any, distinct: bool
) -> Gaussian:
    rest = [axis for axis in range(len(value.shape)) if axis not in axes]
    last = [axis for axis in rest if axis != features]
    front = permute(value, (*axes, *last, *([] if features is None else [features])))
    result = index_batch(front, tuple(indices[axis] for axis in axes), distinct=distinct)
    if features is None:
        return result
    rank = len(result.shape)
    return move_axis(result, rank - 1, rank - len(rest) + rest.index(features))


def _index_feature_axis(value: Gaussian, indices: Array, distinct: bool) -> Gaussian:
    last = move_axis(value, len(value.shape) + (value.axis or 0), len(value.shape) - 1)
    batch = batch_shape(value.shape, value.axis)
    if not indices.shape:
        return index_features(last, indices)
    flat = index_features(last, namespace(indices).reshape(indices, (-1,)), distinct=distinct)
    return reshape(move_axis(flat, len(batch), 0), (*indices.shape, *batch))


def _index_features_and_batch(
    value: Gaussian, axes: list[int], indices: Mapping[int, Array], distinct: bool
) -> Gaussian:
    """Select along the feature axis and the batch; one known place of either keeps dependence."""
    features = len(value.shape) + (value.axis or 0)
    single = {axis: value_range(indices[axis]) for axis in axes if axis != features}
    if all(known is not None and known[0] == known[1] for known in single.values()):
        for axis, known in sorted(single.items(), reverse=True):
            value = take(value, int(known[0]), axis)  # type: ignore[index]
        features_left = features - sum(axis < features for axis in single)
        return index_axes(value, {features_left: indices[features]}, distinct=distinct)
    features_range = value_range(indices[features])
    if features_range is not None and features_range[0] == features_range[1]:
        last = move_axis(value, features, len(value.shape) - 1)
        left = {axis - (axis > features): indices[axis] for axis in axes if axis != features}
        return index_axes(index_features(last, int(features_range[0])), left, distinct=distinct)
    move = lambda array: _index_array(array, axes, indices)  # noqa: E731
    return _select_variances(value, move, "an index of features and batch together", distinct)
