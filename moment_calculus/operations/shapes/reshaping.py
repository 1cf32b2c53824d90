"""Reshapes and broadcasts of live values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.flattened import flattened
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    moved,
    warn_dropped,
    with_batch,
)
from moment_calculus.operations.shapes.reshaped import (
    Featured,
    Refeatured,
    Reshaped,
    Split,
    Unfeatured,
    Widened,
)
from moment_calculus.values import Deferred, Gaussian, Ties
from moment_calculus.values.lags import lag_covariance, remaining
from moment_calculus.values.layout import batch_shape
from moment_calculus.values.spread import none_or_all
from moment_calculus.values.vectors import as_vector, of_parts

KEEP = object()


@dataclass(frozen=True, eq=False)
class Expanded(Moved):
    """A value repeated along axes of the batch or of the features.

    Args:
        shape: of the result.
        axis: feature axis of both.
    """

    shape: tuple[int, ...]
    axis: int | None

    @property
    def size(self) -> int:
        """Number of features of the result."""
        return 1 if self.axis is None else self.shape[self.axis]

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether there are as many features as before."""
        source, axis = self.source.shape, self.axis
        return self.size == (1 if axis is None or len(source) < -axis else source[axis])

    def move(self, array: Array) -> Array:
        """Repeated."""
        return namespace(array).broadcast_to(array, self.shape)

    def rows(self, array: Array) -> Array | None:
        """Repeated along the batch."""
        if self.source.axis != -1 or self.axis != -1 or self.source.shape[-1] != self.shape[-1]:
            return None
        return namespace(array).broadcast_to(array, (*self.shape[:-1], array.shape[-1]))

    def covariance(self) -> Array:
        """Repeated."""
        covariance, batch = self.source.joint_covariance(), batch_shape(self.shape, self.axis)
        return namespace(covariance).broadcast_to(covariance, (*batch, self.size, self.size))

    def follows(self, place: int) -> bool:
        """Always."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """The rows repeated."""
        if self.identity:
            return cross
        rows = (*cross.shape[:-2], self.size, cross.shape[-1])
        return namespace(cross).broadcast_to(cross, rows)

    def between_features(self, value: Gaussian, rows: slice, columns: slice) -> Array | None:
        """That of the source, if its features stay."""
        stays = self.identity and self.source.axis == self.axis == -1
        return self.source.covariance_between(rows, columns) if stays else None

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Of the source as a vector, or of one scalar repeated."""
        return _as_vector(self.source, value.shape) if self.identity else None


def _as_vector(source: Gaussian, shape: tuple[int, ...]) -> Gaussian | None:
    if source.shape and source.shape[-1] != 1:
        return of_parts(lambda part: broadcast(part, shape), source)
    return broadcast(source, shape, -1) if source.axis is None else None


@dataclass(frozen=True, eq=False)
class Regrouped(Reshaped):
    """Another shape of the batch; the features stay.

    Args:
        axis: their axis in the result.
    """

    axis: int | None

    def rows(self, array: Array) -> Array | None:
        """The batch reshaped."""
        if self.source.axis != -1 or self.axis != -1:
            return None
        return namespace(array).reshape(array, (*self.shape[:-1], array.shape[-1]))

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the batch loses or gains leading axes of size one alone."""
        old = batch_shape(self.source.shape, self.source.axis)
        return _strip_ones(batch_shape(self.shape, self.axis)) == _strip_ones(old)

    def covariance(self) -> Array:
        """The batch reshaped."""
        covariance, batch = self.source.joint_covariance(), batch_shape(self.shape, self.axis)
        return namespace(covariance).reshape(covariance, (*batch, *covariance.shape[-2:]))

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Of the source as a vector whose trailing axis stays, or of one scalar repeated."""
        shape = value.shape
        if self.identity:
            return _as_vector(self.source, shape)
        if not self.source.shape or self.source.shape[-1] != shape[-1]:
            return None
        return of_parts(lambda part: reshape(part, shape), self.source)

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
        return value if value.shape == shape else value.moved(lambda v: broadcast(v, shape))
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
    missing = 0 if axis is None else max(0, -axis - len(value.shape))
    shape = (1,) * missing + value.shape
    if axis is not None and value.axis is None:
        if missing:
            return moved(Widened(value, shape), axis, ties=value.ties)
        if value.shape[axis] == 1:
            return moved(Featured(value, axis), axis, ties=value.ties)
    elif (
        axis is not None and value.axis is not None and value.shape[value.axis] == shape[axis] == 1
    ):
        return moved(Refeatured(value, shape), axis, ties=value.ties)
    if may_lose_dependence(value):
        if axis == -1 and value.axis is None and (vector := as_vector(value)) is not None:
            return vector  # one scalar for all elements of a plate, beside a vector of them
        warn_dropped(value, f"an elementwise operation along axis {axis}")
    return moved(Unfeatured(value, shape), axis, ties=none_or_all(value.independent))


def _expanded(value: Gaussian, shape: tuple[int, ...], axis: int | None) -> Gaussian:
    if value.shape == shape:
        return value
    step = Expanded(value, shape, axis)
    ties = value.ties if step.identity else max(value.ties, Ties.FEATURES)
    sizes = (math.prod(batch_shape(one, axis)) for one in (value.shape, shape))
    return moved(
        step,
        axis,
        dense=value.has_covariance if step.identity else value.propagation.full,
        joint=not step.identity or axis is not None,
        ties=ties if len(set(sizes)) == 1 else Ties.ALL,
    )


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
    axis = _surviving_axis(value, shape)
    ties = none_or_all(value.independent)
    if axis is KEEP and _is_split(value, shape):
        dense = value.has_covariance and not value.independent
        return moved(Split(value, shape), -1, dense=dense, joint=True, ties=ties)
    if axis is KEEP:
        if value.has_covariance and (vector := flattened(value)) not in (None, value):
            return reshape(vector, shape)
        if may_lose_dependence(value):
            warn_dropped(value, f"a reshape from {value.shape} to {shape}")
        return moved(Reshaped(value, shape), -1 if shape else None, ties=ties)
    return with_batch(Regrouped(value, shape, axis), axis)


def _is_split(value: Gaussian, shape: tuple[int, ...]) -> bool:
    lead = value.shape[:-1]
    return value.axis == -1 and len(shape) > len(lead) + 1 and shape[: len(lead)] == lead


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
