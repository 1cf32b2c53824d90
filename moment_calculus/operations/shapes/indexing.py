"""Indexing of live values: slices of the feature axis keep their exact joint covariance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.shapes.keys import Indexed
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
class IndexedFeatures(Moved):
    """Features at a key, on the trailing axis.

    Args:
        key: a slice, or an index array of one axis.
    """

    key: Any

    def move(self, array: Array) -> Array:
        """At the key."""
        return array[..., self.key]

    def covariance(self) -> Array:
        """Rows and columns at the key."""
        return self.source.joint_covariance()[..., self.key, :][..., self.key]

    def follows(self, place: int) -> bool:
        """Always."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Rows at the key."""
        return cross[..., self.key, :]


@dataclass(frozen=True, eq=False)
class OneFeature(IndexedFeatures):
    """One feature, as a batch of scalars."""

    def through(self, place: int, cross: Array) -> Array:
        """One row."""
        return cross[..., self.key, :][..., None, :]


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
    if value.axis not in (-1, None):
        shape = tuple(value.mean[key].shape)
        return _index_apart(value, keys, shape) if _keeps_places(keys) else _plain(value, key)
    return _index_trailing(value, key, keys)


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
    basic = all(map(_is_basic, keys))
    if not (basic or all(map(_is_plain_array, keys))):
        return _plain(value, key)
    wide = _expanded([k for k in keys if k is not None], len(value.shape))
    shape = tuple(value.mean[key].shape)
    if value.axis is None:
        result = index_batch(value, tuple(wide))
    elif _selects_all(wide[-1]):
        result = index_batch(value, tuple(wide[:-1]))
    elif all(map(_selects_all, wide[:-1])) and _rank(wide[-1]) <= 1:
        result = index_features(value, wide[-1])
    elif basic or isinstance(wide[-1], slice):
        result = index_batch(index_features(value, wide[-1]), tuple(wide[:-1]))
    else:
        return _plain(value, key)
    return reshape(result, shape)


def _as_tuple(key: Any) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def _is_basic(key: Any) -> bool:
    """Whether a key is an integer, slice, Ellipsis or None rather than an array or a boolean."""
    return key is None or key is Ellipsis or _is_integer(key) or isinstance(key, slice)


def _is_integer(key: Any) -> bool:
    return isinstance(key, Integral) and not isinstance(key, bool)


def _is_plain_array(key: Any) -> bool:
    """Whether a key, among arrays, leaves the order of the axes to the rules below."""
    truth = "bool" in str(getattr(key, "dtype", type(key)))
    return key is not None and not (truth and not len(getattr(key, "shape", ())))


def _rank(key: Any) -> int:
    """Number of axes of an index array; a list has as many as it is nested."""
    if isinstance(key, list):
        return 1 + (_rank(key[0]) if key else 0)
    return len(getattr(key, "shape", ()))


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
    arrays = [key for key in keys if not _is_basic(key)]
    if not arrays:
        return True
    integers = any(map(_is_integer, keys))
    return len(arrays) == 1 and _is_plain_array(arrays[0]) and _rank(arrays[0]) == 1 != integers


def _index_apart(value: Gaussian, keys: tuple, shape: tuple[int, ...]) -> Gaussian:
    """Index a value whose feature axis is not the trailing one, of a result of this shape."""
    rank = len(value.shape)
    place = rank + (value.axis or 0)
    wide = _expanded([key for key in keys if key is not None], rank)
    features, before = wide.pop(place), sum(not _is_integer(key) for key in wide[:place])
    last = move_axis(value, place, rank - 1)
    result = index_batch(index_features(last, features), tuple(wide))
    if not _is_integer(features):
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
    distinct = distinct or all(map(_is_basic, keys))
    leading = value.axis is None or len(value.shape) + value.axis > 0
    return moved(
        Indexed(value, keys),
        value.axis,
        dense=value.has_covariance,
        joint=value.axis is not None,
        ties=value.ties if distinct else Ties.ALL,
        support=selected(value, keys[0]) if leading else None,
    )


def index_features(value: Gaussian, key: Any, *, distinct: bool = False) -> Gaussian:
    """Index the features of a value, on its trailing axis.

    Args:
        value: the value.
        key: an integer, a slice or an index array of at most one axis.
        distinct: whether an index array is known to choose no feature twice.
    """
    distinct = distinct or _is_basic(key)
    support = selected(value, key) if len(value.shape) == 1 else None
    if _is_integer(key) or (not _is_basic(key) and not _rank(key)):
        return moved(OneFeature(value, key), None, ties=value.ties, support=support)
    repeats = not distinct and value.propagation.full
    return moved(
        IndexedFeatures(value, key),
        -1,
        dense=value.has_covariance or repeats,
        joint=True,
        ties=value.ties if distinct else max(value.ties, Ties.FEATURES),
        support=support,
    )


def _plain(value: Gaussian, key: Any) -> Gaussian:
    """An index that mixes features and batch: variances only.

    Nothing is lost of independent components, which become scalars where some may repeat.
    """
    independent = value.independent and all(map(_is_basic, _as_tuple(key)))
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
