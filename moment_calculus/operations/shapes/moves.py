"""Shape operations on live values: moments move, covariances follow while their axis survives.

On a :class:`Deferred` a shape operation moves its base, so that the function stays recognisable
(the scale of a likelihood, say).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array, diagonal_blocks
from moment_calculus.numerics.special import namespace
from moment_calculus.refusals.errors import CovarianceDroppedWarning
from moment_calculus.refusals.notices import warn_user
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.lags import permuted_lags, reshaped_lags
from moment_calculus.values.layout import Jacobian, batch_shape, identity_map
from moment_calculus.values.layout import broadcast_shape as broadcast_shape

KEEP = object()


def moved(value: Gaussian, move: Callable[[Array], Array], axis: int | None, **changes: Any):
    """The value with its arrays moved; independent components unless told otherwise.

    A move that computes something, as a sum does, goes with ``components=None``.
    """
    changes.setdefault("independent", value.independent)
    if "components" not in changes and value.components is not None:
        changes["components"] = value.components.moved(move)
    return Gaussian(
        move(value.mean),
        move(value.variance),
        axis=axis,
        sites=value.sites,
        propagation=value.propagation,
        **changes,
    )


def broadcast(value: Any, shape: Sequence[int], axis: Any = KEEP) -> Any:
    """Expand a value to a shape, on a given feature axis.

    Args:
        value: value or array.
        shape: target shape.
        axis: feature axis of the result; by default the value's own.
    """
    shape = tuple(shape)
    if isinstance(value, Deferred):
        same = value.shape == shape
        return value if same else value.moved(lambda v: broadcast(v, shape))
    if not isinstance(value, Gaussian):
        return namespace(value).broadcast_to(value, shape)
    axis = value.axis if axis is KEEP else axis
    if value.shape == shape and value.axis == axis:
        return value
    return _expanded(_on_axis(value, axis), shape, axis)


def _on_axis(value: Gaussian, axis: int | None) -> Gaussian:
    """Give a value that will be expanded the feature axis ``axis``."""
    if value.axis == axis:
        return value
    if axis is not None and value.axis is None:
        if len(value.shape) < -axis:
            return _single_feature(value, axis)
        if value.shape[axis] == 1:
            parents = ((value, _dropped_axis(value, axis)),)
            return moved(value, lambda a: a, axis, parents=parents, apart=value.apart)
    if may_lose_dependence(value):
        warn_dropped(value, f"an elementwise operation along axis {axis}")
    missing = 0 if axis is None else max(0, -axis - len(value.shape))
    shape = (1,) * missing + value.shape
    origin = value.origin if value.independent and not missing else None
    unknown = ((value, None),)
    return moved(value, lambda a: reshape(a, shape), axis, parents=unknown, origin=origin)


def _single_feature(value: Gaussian, axis: int) -> Gaussian:
    """A value with too few axes: the missing feature axis has size one."""
    shape = (1,) * (-axis - len(value.shape)) + value.shape
    parents = ((value, identity_map),)
    return moved(value, lambda a: reshape(a, shape), axis, parents=parents, apart=value.apart)


def _dropped_axis(value: Gaussian, axis: int) -> Jacobian:
    """An axis of size one of the batch becomes the feature axis, so the batch loses it."""

    def drop(cross: Array) -> Array | None:
        lead = (1,) * (len(value.shape) - len(cross.shape) + 2)
        batch = (*lead, *cross.shape[:-2])
        if batch[axis] != 1:
            return None
        return reshape(cross, (*batch_shape(batch, axis), *cross.shape[-2:]))

    return drop


def _expanded(value: Gaussian, shape: tuple[int, ...], axis: int | None) -> Gaussian:
    if value.shape == shape:
        return value
    xp = namespace(value.mean)
    move = lambda a: xp.broadcast_to(a, shape)  # noqa: E731
    same_batch = math.prod(batch_shape(value.shape, axis)) == math.prod(batch_shape(shape, axis))
    size = 1 if axis is None or len(value.shape) < -axis else value.shape[axis]
    wide = 1 if axis is None else shape[axis]
    batch = batch_shape(shape, axis)
    spread = lambda: xp.broadcast_to(value.joint_covariance(), (*batch, wide, wide))  # noqa: E731
    if size == wide:
        return moved(
            value,
            move,
            axis,
            covariance=spread if value.has_covariance else None,
            joint=None if axis is None else spread,
            parents=((value, identity_map),),
            independent=value.independent and same_batch,
            apart=value.apart and same_batch,
        )
    return moved(
        value,
        move,
        axis,
        covariance=spread if value.propagation.full else None,
        joint=spread,
        parents=((value, lambda cross: _repeat_rows(cross, wide)),),
        independent=False,
        apart=value.apart and same_batch,
    )


def _repeat_rows(cross: Array, size: int) -> Array:
    return namespace(cross).broadcast_to(cross, (*cross.shape[:-2], size, cross.shape[-1]))


def reshape(value: Any, shape: Sequence[int]) -> Any:
    """Reshape a value; a full covariance is kept while its feature axis survives.

    A trailing feature axis that is split, as that of the heads of attention, leaves the last part
    of it with its covariance; the other parts become a batch.

    Args:
        value: value or array.
        shape: target shape, without -1.

    Warns:
        CovarianceDroppedWarning: if the feature axis of a full covariance is merged with others.
    """
    shape = tuple(shape)
    if isinstance(value, Deferred):
        return value if value.shape == shape else value.moved(lambda v: reshape(v, shape))
    if not isinstance(value, Gaussian):
        return namespace(value).reshape(value, shape)
    if value.shape == shape:
        return value
    xp = namespace(value.mean)
    move = lambda a: xp.reshape(a, shape)  # noqa: E731
    axis = _surviving_axis(value, shape)
    if axis is KEEP and _is_split(value, shape):
        return _split(value, move, shape)
    if axis is KEEP:
        if may_lose_dependence(value):
            warn_dropped(value, f"a reshape from {value.shape} to {shape}")
        return moved(value, move, -1 if shape else None, parents=((value, None),))
    batch = batch_shape(shape, axis)
    spread = lambda c: xp.reshape(c, (*batch, *c.shape[-2:]))  # noqa: E731
    return _with_batch(value, move, axis, spread, batch, lags=reshaped_lags(value, shape))


def _is_split(value: Gaussian, shape: tuple[int, ...]) -> bool:
    lead = value.shape[:-1]
    return value.axis == -1 and len(shape) > len(lead) + 1 and shape[: len(lead)] == lead


def _split(value: Gaussian, move: Callable[[Array], Array], shape: tuple[int, ...]) -> Gaussian:
    parts = shape[len(value.shape) - 1 :]
    joint = lambda: diagonal_blocks(value.joint_covariance(), parts)  # noqa: E731
    dense = value.has_covariance and not value.independent
    covariance = joint if dense else None
    return moved(value, move, -1, covariance=covariance, joint=joint, parents=((value, None),))


def _surviving_axis(value: Gaussian, shape: tuple[int, ...]) -> Any:
    """The feature axis after a reshape; KEEP (a mark) if it does not survive."""
    if value.axis is None:
        return -1 if value.shape and shape[:-1] == value.shape else None
    size = value.shape[value.axis]
    if size == 1 and shape == batch_shape(value.shape, value.axis):
        return None
    tail = math.prod(value.shape[len(value.shape) + value.axis + 1 :])
    for axis in range(-1, -len(shape) - 1, -1):
        if shape[axis] == size and math.prod(shape[len(shape) + axis + 1 :]) == tail:
            return axis
    return None if size == 1 else KEEP


def _with_batch(value: Gaussian, move, axis, move_batch, batch, *, aligned=None, **changes):
    """Move the batch of a value whose features stay as they are."""
    if aligned is None:
        old = batch_shape(value.shape, value.axis)
        aligned = _strip_ones(batch) == _strip_ones(old)
    joint = None
    if value.axis is not None:
        joint = lambda: move_batch(value.joint_covariance())  # noqa: E731
    covariance = None
    if value.has_covariance and axis is not None:
        covariance = joint
    return moved(
        value,
        move,
        axis,
        covariance=covariance,
        joint=joint,
        parents=((value, identity_map if aligned else None),),
        apart=value.apart,
        **changes,
    )


def _strip_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def permute(value: Any, order: Sequence[int]) -> Any:
    """Reorder the axes of a value or array; the feature axis moves along.

    Args:
        value: value or array of rank n.
        order: the old axis at each new place, a permutation of 0 … n − 1.
    """
    order = tuple(order)
    if isinstance(value, Deferred):
        return value.moved(lambda v: permute(v, order))
    if not isinstance(value, Gaussian):
        return namespace(value).permute_dims(value, order)
    rank = len(order)
    if order == tuple(range(rank)):
        return value
    xp = namespace(value.mean)
    place = None if value.axis is None else rank + value.axis
    axis = None if place is None else order.index(place) - rank
    batch = [o - (place is not None and o > place) for o in order if o != place]
    return _with_batch(
        value,
        lambda a: xp.permute_dims(a, order),
        axis,
        lambda c: xp.permute_dims(c, (*batch, len(batch), len(batch) + 1)),
        (),
        aligned=batch == sorted(batch),
        lags=permuted_lags(value, order),
    )


def swap_last(value: Any) -> Any:
    """Transpose the two trailing axes of a value or array; the feature axis moves along."""
    rank = len(value.shape)
    return permute(value, (*range(rank - 2), rank - 1, rank - 2))


def move_axis(value: Any, source: int, target: int) -> Any:
    """Move one axis of a value or array to another place; the other axes keep their order.

    Args:
        value: value or array.
        source: non-negative axis.
        target: its non-negative place in the result.
    """
    order = [axis for axis in range(len(value.shape)) if axis != source]
    order.insert(target, source)
    return permute(value, order)


def converted(value: Any, move: Callable[[Array], Array]) -> Any:
    """The same value in another precision or on another device.

    Args:
        value: value or array.
        move: converts an array.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: converted(v, move))
    if not isinstance(value, Gaussian):
        return move(value)
    joint = lambda: move(value.joint_covariance())  # noqa: E731
    return moved(
        value,
        move,
        value.axis,
        covariance=joint if value.has_covariance else None,
        joint=joint,
        parents=((value, move),),
        apart=value.apart,
        components=value.components,
    )


def may_lose_dependence(value: Gaussian) -> bool:
    """Whether a change of the feature axis loses a covariance that full mode knows or carries."""
    return value.propagation.full and not value.independent


def warn_dropped(value: Gaussian, what: str) -> None:
    """Tell the user once per line that only the diagonal of a covariance is kept."""
    warn_user(
        f"{what} mixes the feature axis of a covariance that depends on latent site(s) "
        f"{', '.join(sorted(value.sites))}: only the variances are kept, and what follows takes "
        "the components as independent; keep the outputs of a layer on an axis of their own (a "
        "mean over positions instead of a reshape), or draw a site by naming it in sample_sites=",
        CovarianceDroppedWarning,
    )
