"""Indexing of live values: slices of the feature axis keep their exact joint covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.shapes.features import index_features
from moment_calculus.operations.shapes.flattened import flattened
from moment_calculus.operations.shapes.keys import Indexed, is_basic, is_integer, rank_of
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    move_axis,
    moved,
    warn_dropped,
)
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian, Ties, Value
from moment_calculus.values.spread import none_or_all
from moment_calculus.values.support import selected

ALL = slice(None)


@dataclass(frozen=True, eq=False)
class Mixed(Moved):
    """Elements at a key that mixes features and batch.

    Args:
        key: any.
    """

    key: Any

    def move(self, array: Array) -> Array:
        """At the key."""
        return array[self.key]


def index(value: Any, key: Any) -> Any:
    """Index a value as an array is indexed.

    An index of the feature axis keeps the joint covariance with every other slice; an index of
    the batch keeps the covariance of each element, also with what was chosen by the same key, or by
    another index array from independent elements. Dependence between different elements of the
    batch is not tracked otherwise: combining them is refused, or warned about for sums.

    Args:
        value: the value, or an array.
        key: integers, slices, Ellipsis, None, or index arrays, as the host indexes.

    Raises:
        UnsupportedMoments: if the key is random.
    """
    keys = _as_tuple(key)
    require_certain(*keys)
    if not hasattr(value, "sites"):
        return value[key]
    if isinstance(value, Deferred):
        return value.moved(lambda v: index(v, key) if hasattr(v, "sites") else v[key])
    if (whole := _of_vector(value, keys)) is not None:
        return whole
    if value.axis not in (-1, None):
        shape = tuple(value.mean[key].shape)
        return _index_apart(value, keys, shape) if _keeps_places(keys) else _plain(value, key)
    return _index_trailing(value, key, keys)


def _of_vector(value: Gaussian, keys: tuple) -> Gaussian | None:
    """Elements of an array whose elements are all dependent, with the covariance of any two."""
    if len(value.shape) < 2 or value.independent or not all(map(is_basic, keys)):
        return None
    vector = flattened(value)
    if vector is None:
        return None
    numbers = np.arange(math.prod(value.shape)).reshape(value.shape)[keys]
    return reshape(index_features(vector, numbers.reshape(-1), distinct=True), numbers.shape)


def require_certain(*keys: Any) -> None:
    """Refuse indices that depend on a random value.

    Args:
        keys: parts of a key, as of :func:`index`.

    Raises:
        UnsupportedMoments: if one of them is random.
    """
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
        return _plain(value, key)
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
        return _plain(value, key)
    added = any(k is None for k in keys)
    return reshape(result, tuple(value.mean[key].shape)) if added else result


def _as_tuple(key: Any) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def _is_plain_array(key: Any) -> bool:
    """Whether a key, among arrays, leaves the order of the axes to the rules below."""
    truth = "bool" in str(getattr(key, "dtype", type(key)))
    return key is not None and not (truth and not len(getattr(key, "shape", ())))


def _expanded(keys: list, rank: int) -> list:
    """Replace an Ellipsis, or the missing end, by full slices."""
    used = sum(_axes_of(k) for k in keys if k is not Ellipsis)
    place = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    return keys[:place] + [ALL] * (rank - used) + keys[place + 1 :]


def _axes_of(key: Any) -> int:
    """How many axes a key consumes: a boolean mask consumes as many as it has."""
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


def _index_apart(value: Gaussian, keys: tuple, shape: tuple[int, ...]) -> Gaussian:
    """Index a value whose feature axis is not the trailing one, of a result of this shape."""
    rank = len(value.shape)
    place = rank + (value.axis or 0)
    wide = _expanded([key for key in keys if key is not None], rank)
    features, before = wide.pop(place), sum(not is_integer(key) for key in wide[:place])
    last = move_axis(value, place, rank - 1)
    result = index_batch(index_features(last, features), tuple(wide))
    if not is_integer(features):
        result = move_axis(result, len(result.shape) - 1, before)
    return reshape(result, shape)


def index_batch(value: Gaussian, keys: tuple, *, distinct: bool = False) -> Gaussian:
    """Index the axes of the batch of a value; the feature axis follows.

    Args:
        value: a value whose feature axis is the trailing one, or that has none.
        keys: of leading axes, without Ellipsis and None.
        distinct: whether index arrays are known to choose no element twice.
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
        support=selected(value, keys[0]) if leading else None,
    )


def _plain(value: Gaussian, key: Any) -> Gaussian:
    """An index that mixes features and batch: variances only.

    Nothing is lost of independent components, which become scalars where some may repeat.
    """
    independent = value.independent and all(map(is_basic, _as_tuple(key)))
    scalars = not value.mean[key].shape or (value.independent and not independent)
    result = moved(Mixed(value, key), None if scalars else -1, ties=none_or_all(independent))
    if math.prod(result.shape) > 1 and may_lose_dependence(value):
        warn_dropped(value, "an index of features and batch together, unlike x[i][..., j],")
    return result


def unstack(value: Value, axis: int) -> tuple[Value, ...]:
    """Slices along an axis, in order.

    Args:
        value: the value.
        axis: non-negative axis.
    """
    lead = (ALL,) * axis
    return tuple(index(value, (*lead, i)) for i in range(value.shape[axis]))


def take(value: Any, chosen: Any, axis: int) -> Any:
    """Elements along one axis, in a given order, repeated or not.

    Args:
        value: value or array.
        chosen: integers [n] or a slice.
        axis: non-negative axis.
    """
    return index(value, ((ALL,) * axis + (chosen,)) if axis else chosen)
