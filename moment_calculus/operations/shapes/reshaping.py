"""Reshapes and broadcasts of live values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array, diagonal_blocks
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    moved,
    relocated,
    warn_dropped,
    with_batch,
)
from moment_calculus.values import Deferred, Gaussian, Ties
from moment_calculus.values.lags import lag_covariance, remaining
from moment_calculus.values.layout import batch_shape
from moment_calculus.values.ties import none_or_all
from moment_calculus.values.vectors import of_parts

KEEP = object()


@dataclass(frozen=True, eq=False)
class Expanded(Moved):
    """A value repeated along axes of the batch."""

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Of the source as a vector, or of one scalar repeated."""
        source = self.source
        if not self.identity:
            return None
        if source.shape and source.shape[-1] != 1:
            return of_parts(lambda part: broadcast(part, value.shape), source)
        return broadcast(source, value.shape, -1) if source.axis is None else None


@dataclass(frozen=True, eq=False)
class Reshaped(Expanded):
    """Another shape of the batch; the features stay.

    Args:
        shape: the new one.
    """

    shape: tuple[int, ...] = ()

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Known of a value that gains or loses axes of size one."""
        old = self.source.shape
        places = [place for place, n in enumerate(old) if n != 1]
        if [old[place] for place in places] != [n for n in self.shape if n != 1]:
            return NotImplemented
        before = [0] * len(old)
        steps = [o for o, n in zip(offset, self.shape, strict=True) if n != 1]
        for place, step in zip(places, steps, strict=True):
            before[place] = step
        known = lag_covariance(self.source, before)
        if known is None:
            return None
        return namespace(known).reshape(known, remaining(self.shape, offset))


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
            rows = lambda cross: _dropped_axis(value, axis, cross)  # noqa: E731
            step = Moved(value, relocated(value, lambda a: a), rows)
            return moved(value, lambda a: a, axis, step, ties=value.ties)
    if may_lose_dependence(value):
        warn_dropped(value, f"an elementwise operation along axis {axis}")
    missing = 0 if axis is None else max(0, -axis - len(value.shape))
    shape = (1,) * missing + value.shape
    move = lambda a: reshape(a, shape)  # noqa: E731
    in_place = value.independent and not missing
    step = Moved(value, relocated(value, move), in_place=in_place)
    return moved(value, move, axis, step, ties=none_or_all(value.independent))


def _single_feature(value: Gaussian, axis: int) -> Gaussian:
    """A value with too few axes: the missing feature axis has size one."""
    shape = (1,) * (-axis - len(value.shape)) + value.shape
    move = lambda a: reshape(a, shape)  # noqa: E731
    step = Moved(value, relocated(value, move), identity=True)
    return moved(value, move, axis, step, ties=value.ties)


def _dropped_axis(value: Gaussian, axis: int, cross: Array) -> Array | None:
    """An axis of size one of the batch becomes the feature axis, so the batch loses it."""
    lead = (1,) * (len(value.shape) - len(cross.shape) + 2)
    batch = (*lead, *cross.shape[:-2])
    if batch[axis] != 1:
        return None
    return reshape(cross, (*batch_shape(batch, axis), *cross.shape[-2:]))


def _expanded(value: Gaussian, shape: tuple[int, ...], axis: int | None) -> Gaussian:
    if value.shape == shape:
        return value
    xp = namespace(value.mean)
    move = lambda a: xp.broadcast_to(a, shape)  # noqa: E731
    batch = batch_shape(shape, axis)
    same_batch = math.prod(batch_shape(value.shape, axis)) == math.prod(batch)
    size = 1 if axis is None or len(value.shape) < -axis else value.shape[axis]
    wide = 1 if axis is None else shape[axis]
    repeated = size != wide
    rows = (lambda cross: _repeat_rows(cross, wide)) if repeated else None
    ties = max(value.ties, Ties.FEATURES) if repeated else value.ties
    spread = lambda: xp.broadcast_to(value.joint_covariance(), (*batch, wide, wide))  # noqa: E731
    dense = value.propagation.full if repeated else value.has_covariance
    return moved(
        value,
        move,
        axis,
        Expanded(value, relocated(value, move), rows, identity=not repeated),
        covariance=spread if dense else None,
        joint=spread if repeated or axis is not None else None,
        ties=ties if same_batch else Ties.ALL,
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
        return moved(value, move, -1 if shape else None, ties=none_or_all(value.independent))
    batch, old = batch_shape(shape, axis), batch_shape(value.shape, value.axis)
    aligned = _strip_ones(batch) == _strip_ones(old)
    step = Reshaped(value, relocated(value, move), identity=aligned, shape=shape)
    return with_batch(value, move, axis, step, lambda c: xp.reshape(c, (*batch, *c.shape[-2:])))


def _is_split(value: Gaussian, shape: tuple[int, ...]) -> bool:
    lead = value.shape[:-1]
    return value.axis == -1 and len(shape) > len(lead) + 1 and shape[: len(lead)] == lead


def _split(value: Gaussian, move: Callable[[Array], Array], shape: tuple[int, ...]) -> Gaussian:
    parts = shape[len(value.shape) - 1 :]
    joint = lambda: diagonal_blocks(value.joint_covariance(), parts)  # noqa: E731
    dense = value.has_covariance and not value.independent
    ties = none_or_all(value.independent)
    return moved(value, move, -1, covariance=joint if dense else None, joint=joint, ties=ties)


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


def _strip_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
