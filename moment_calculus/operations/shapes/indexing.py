"""Indexing of live values: slices of the feature axis keep their exact joint covariance."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.keys import Indexed
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    move_axis,
    moved,
    relocated,
    warn_dropped,
)
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian, Ties, Value, features_last
from moment_calculus.values.layout import batch_shape
from moment_calculus.values.support import Support, selected
from moment_calculus.values.ties import none_or_all

ALL = slice(None)


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
                remedy="index with certain integers, slices or masks",
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
    joint = None if value.axis is None else (lambda: value.joint_covariance()[keys])
    leading = value.axis is None or len(value.shape) + value.axis > 0
    move = lambda a: a[keys]  # noqa: E731
    return moved(
        value,
        move,
        value.axis,
        Indexed(value, relocated(value, move), keys=keys),
        covariance=joint if value.has_covariance else None,
        joint=joint,
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
    move = lambda a: a[..., key]  # noqa: E731
    if _is_integer(key) or (not _is_basic(key) and not _rank(key)):
        step = Moved(value, relocated(value, move), lambda c: c[..., key, :][..., None, :])
        return moved(value, move, None, step, ties=value.ties, support=_of_vector(value, key))
    select = lambda: value.joint_covariance()[..., key, :][..., key]  # noqa: E731
    repeats = not distinct and value.propagation.full
    return moved(
        value,
        move,
        -1,
        Moved(value, relocated(value, move), lambda c: c[..., key, :]),
        covariance=select if value.has_covariance or repeats else None,
        joint=select,
        ties=value.ties if distinct else max(value.ties, Ties.FEATURES),
        support=_of_vector(value, key),
    )


def _of_vector(value: Gaussian, key: Any) -> Support | None:
    return selected(value, key) if len(value.shape) == 1 else None


def _plain(value: Gaussian, key: Any) -> Gaussian:
    """An index that mixes features and batch: variances only.

    Nothing is lost of independent components, which become scalars where some may repeat.
    """
    independent = value.independent and all(map(_is_basic, _as_tuple(key)))
    scalars = not value.mean[key].shape or (value.independent and not independent)
    axis, ties = None if scalars else -1, none_or_all(independent)
    result = moved(value, lambda a: a[key], axis, ties=ties)
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


def gather(value: Any, chosen: Array, axis: int) -> Any:
    """Elements along one axis, chosen for every element of the other axes.

    Along the feature axis the joint covariance is kept.

    Args:
        value: value or array.
        chosen: non-negative integers of the value's shape, except along the axis.
        axis: non-negative axis.

    Warns:
        CovarianceDroppedWarning: if elements of the batch with dependent features are mixed.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: gather(v, chosen, axis))
    pick = lambda a: namespace(a).take_along_axis(a, chosen, axis=axis)  # noqa: E731
    if not isinstance(value, Gaussian):
        return pick(value)
    if value.axis is not None and axis == len(value.shape) + value.axis:
        return _gather_features(value, chosen, pick)
    if value.axis is not None and may_lose_dependence(value):
        warn_dropped(value, "a choice of elements of the batch for every feature")
    return moved(value, pick, value.axis)


def _gather_features(value: Gaussian, chosen: Array, pick: Any) -> Gaussian:
    last, batch = features_last(chosen, value.axis)[..., None], batch_shape(value.shape, value.axis)

    def rows(cross: Array) -> Array:
        xp = namespace(cross)
        places = xp.broadcast_to(last, (*batch, last.shape[-2], cross.shape[-1]))
        wide = xp.broadcast_to(cross, (*batch, *cross.shape[-2:]))
        return xp.take_along_axis(wide, places, axis=-2)

    joint = lambda: rows(rows(value.joint_covariance()).mT)  # noqa: E731
    return moved(
        value,
        pick,
        value.axis,
        Moved(value, relocated(value, pick), rows),
        covariance=joint if value.propagation.full else None,
        joint=joint,
        ties=max(value.ties, Ties.FEATURES),
    )
