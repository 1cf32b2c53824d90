"""Indexing of live values: slices of the feature axis keep their exact joint covariance."""

from __future__ import annotations

import math
from numbers import Integral
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.shapes import moved, reshape, warn_dropped
from moment_calculus.values import Deferred, Gaussian, Value

ALL = slice(None)


def index(value: Any, key: Any) -> Any:
    """Index a value as an array is indexed.

    An index of the feature axis keeps the joint covariance with every other slice; an index of
    the batch keeps the covariance of each element. Dependence between different elements of the
    batch is not tracked: combining them is refused, or warned about for sums.

    Args:
        value: the value, or an array.
        key: integers, slices, Ellipsis, None, or index arrays, as the host indexes.

    Raises:
        UnsupportedMoments: if the key is random.
    """
    keys = _as_tuple(key)
    _check_certain(keys)
    if not hasattr(value, "sites"):
        return value[key]
    if isinstance(value, Deferred):
        return value.moved(lambda v: index(v, key) if hasattr(v, "sites") else v[key])
    basic = all(map(_is_basic, keys))
    if value.axis not in (-1, None) or not (basic or all(map(_is_plain_array, keys))):
        return _plain(value, key)
    wide = _expanded([k for k in keys if k is not None], len(value.shape))
    shape = tuple(value.mean[key].shape)
    if value.axis is None:
        result = _index_batch(value, tuple(wide))
    elif _selects_all(wide[-1]):
        result = _index_batch(value, tuple(wide[:-1]))
    elif all(map(_selects_all, wide[:-1])) and _rank(wide[-1]) <= 1:
        result = _index_features(value, wide[-1])
    elif basic:
        result = _index_batch(_index_features(value, wide[-1]), tuple(wide[:-1]))
    else:
        return _plain(value, key)
    return reshape(result, shape)


def _as_tuple(key: Any) -> tuple:
    return key if isinstance(key, tuple) else (key,)


def _check_certain(keys: tuple) -> None:
    for key in keys:
        if hasattr(key, "sites"):
            raise UnsupportedMoments(
                "an index that depends on a random value",
                sites=key.sites,
                remedy="index with certain integers, slices or masks",
            )


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


def _index_batch(value: Gaussian, keys: tuple) -> Gaussian:
    """Keys of the axes of the batch; the feature axis follows."""
    if all(map(_selects_all, keys)):
        return value
    joint = None if value.axis is None else (lambda: value.joint_covariance()[keys])
    return moved(
        value,
        lambda a: a[keys],
        value.axis,
        covariance=joint if value.has_covariance else None,
        joint=joint,
        parents=((value, None),),
        independent=value.independent and all(map(_is_basic, keys)),
    )


def _index_features(value: Gaussian, key: Any) -> Gaussian:
    basic = _is_basic(key)
    if _is_integer(key) or (not basic and not _rank(key)):
        return moved(
            value,
            lambda a: a[..., key],
            None,
            parents=((value, lambda c: c[..., key, :][..., None, :]),),
        )
    select = lambda: value.joint_covariance()[..., key, :][..., key]  # noqa: E731
    repeats = not basic and value.propagation.full
    return moved(
        value,
        lambda a: a[..., key],
        -1,
        covariance=select if value.has_covariance or repeats else None,
        joint=select,
        parents=((value, lambda c: c[..., key, :]),),
        independent=value.independent and basic,
    )


def _plain(value: Gaussian, key: Any) -> Gaussian:
    """An index that mixes features and batch: variances only."""
    result = moved(
        value,
        lambda a: a[key],
        -1 if len(value.mean[key].shape) else None,
        parents=((value, None),),
        independent=value.independent and all(map(_is_basic, _as_tuple(key))),
    )
    full = value.propagation.full
    if math.prod(result.shape) > 1 and full and not result.independent:
        warn_dropped(value, "an index of features and batch together")
    return result


def unstack(value: Value, axis: int) -> tuple[Value, ...]:
    """Slices along an axis, in order.

    Args:
        value: the value.
        axis: non-negative axis.
    """
    lead = (ALL,) * axis
    return tuple(index(value, (*lead, i)) for i in range(value.shape[axis]))
