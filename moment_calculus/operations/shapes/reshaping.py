"""Reshapes and broadcasts of live values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.flattening import flattened
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    moved,
    warn_dropped,
    with_batch,
)
from moment_calculus.operations.shapes.reshape_steps import (
    OnBatchAxis,
    OnOtherAxis,
    Reshaped,
    SplitFeatures,
    Unsqueezed,
    WithoutCovariance,
)
from moment_calculus.values import Deferred, Gaussian, Ties
from moment_calculus.values.lags import lag_covariance, remaining
from moment_calculus.values.layout import batch_shape
from moment_calculus.values.spread import none_or_all
from moment_calculus.values.vectors import as_vector, from_vector_parts

OWN_AXIS = object()  # argument of broadcast: the feature axis stays
LOST = object()  # a feature axis that does not survive a reshape


@dataclass(frozen=True, eq=False)
class Expanded(Moved):
    """Step that repeats a value along axes of the batch or of the features."""

    shape: tuple[int, ...]  # of the result
    axis: int | None  # the feature axis of source and result

    @property
    def size(self) -> int:
        """Number of features of the result."""
        return 1 if self.axis is None else self.shape[self.axis]

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the number of features stays the same."""
        source, axis = self.source.shape, self.axis
        return self.size == (1 if axis is None or len(source) < -axis else source[axis])

    def move(self, array: Array) -> Array:
        """Broadcast an array."""
        return namespace(array).broadcast_to(array, self.shape)

    def rearrange_rows(self, array: Array) -> Array | None:
        """Broadcast the batch of an array of other features."""
        if self.source.axis != -1 or self.axis != -1 or self.source.shape[-1] != self.shape[-1]:
            return None
        return namespace(array).broadcast_to(array, (*self.shape[:-1], array.shape[-1]))

    def covariance(self) -> Array:
        """Broadcast the joint covariance."""
        covariance, batch = self.source.joint_covariance(), batch_shape(self.shape, self.axis)
        return namespace(covariance).broadcast_to(covariance, (*batch, self.size, self.size))

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Repeat the rows of the covariance with another value."""
        if self.identity:
            return cross
        rows = (*cross.shape[:-2], self.size, cross.shape[-1])
        return namespace(cross).broadcast_to(cross, rows)

    def between_features(self, value: Gaussian, rows: slice, columns: slice) -> Array | None:
        """Return that covariance of the source, if its features stay the same."""
        stays = self.identity and self.source.axis == self.axis == -1
        return self.source.covariance_between(rows, columns) if stays else None

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Repeat the source as a vector, or one scalar along a new feature axis."""
        return _as_vector(self.source, value.shape) if self.identity else None


def _as_vector(source: Gaussian, shape: tuple[int, ...]) -> Gaussian | None:
    if source.shape and source.shape[-1] != 1:
        return from_vector_parts(lambda part: broadcast(part, shape), source)
    return broadcast(source, shape, -1) if source.axis is None else None


@dataclass(frozen=True, eq=False)
class Regrouped(Reshaped):
    """Step of a reshape of the batch that keeps the features."""

    axis: int | None

    def rearrange_rows(self, array: Array) -> Array | None:
        """Reshape the batch of an array of other features."""
        if self.source.axis != -1 or self.axis != -1:
            return None
        return namespace(array).reshape(array, (*self.shape[:-1], array.shape[-1]))

    @property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the batch gains or loses only leading axes of size one."""
        old = batch_shape(self.source.shape, self.source.axis)
        return _strip_ones(batch_shape(self.shape, self.axis)) == _strip_ones(old)

    def covariance(self) -> Array:
        """Reshape the batch of the joint covariance."""
        covariance, batch = self.source.joint_covariance(), batch_shape(self.shape, self.axis)
        return namespace(covariance).reshape(covariance, (*batch, *covariance.shape[-2:]))

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Reshape the source as a vector, if its trailing axis stays, or repeat a scalar."""
        shape = value.shape
        if self.identity:
            return _as_vector(self.source, shape)
        if not self.source.shape or self.source.shape[-1] != shape[-1]:
            return None
        return from_vector_parts(lambda part: reshape(part, shape), self.source)

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Reshape the covariance of components an offset apart, if only ones come or go."""
        old = self.source.shape
        places = [place for place, n in enumerate(old) if n != 1]
        if [old[place] for place in places] != [n for n in self.shape if n != 1]:
            return NotImplemented
        before = [0] * len(old)
        steps = [o for o, n in zip(offset, self.shape, strict=True) if n != 1]
        for place, step in zip(places, steps, strict=True):
            before[place] = step
        covariance = lag_covariance(self.source, before)
        if covariance is None:
            return None
        return namespace(covariance).reshape(covariance, remaining(self.shape, offset))


def broadcast(value: Any, shape: Sequence[int], axis: Any = OWN_AXIS) -> Any:
    """Broadcast a value or array to a shape, on a feature axis (by default the value's own)."""
    shape = tuple(shape)
    if isinstance(value, Deferred):
        return value if value.shape == shape else value.moved(lambda v: broadcast(v, shape))
    if not isinstance(value, Gaussian):
        return namespace(value).broadcast_to(value, shape)
    axis = value.axis if axis is OWN_AXIS else axis
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
            return moved(Unsqueezed(value, shape), axis, ties=value.ties)
        if value.shape[axis] == 1:
            return moved(OnBatchAxis(value, axis), axis, ties=value.ties)
    elif (
        axis is not None and value.axis is not None and value.shape[value.axis] == shape[axis] == 1
    ):
        return moved(OnOtherAxis(value, shape), axis, ties=value.ties)
    if may_lose_dependence(value):
        if axis == -1 and value.axis is None and (vector := as_vector(value)) is not None:
            return vector  # e.g. elements of a plate that share one scalar, beside a vector
        warn_dropped(value, f"an elementwise operation along axis {axis}")
    return moved(WithoutCovariance(value, shape), axis, ties=none_or_all(value.independent))


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
    """Reshape a value or array; a full covariance is kept while its feature axis survives.

    If a trailing feature axis is split, as for the heads of attention, the last part
    keeps its covariance and the other parts become a batch. A merge with other axes drops
    it, with a warning.
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
    if axis is LOST and _is_split(value, shape):
        dense = value.has_covariance and not value.independent
        return moved(SplitFeatures(value, shape), -1, dense=dense, joint=True, ties=ties)
    if axis is LOST:
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
    """Return the feature axis after a reshape; the mark LOST if it does not survive."""
    if value.axis is None:
        return -1 if value.shape and shape[:-1] == value.shape else None
    size = value.shape[value.axis]
    if size == 1 and shape == batch_shape(value.shape, value.axis):
        return None
    tail = math.prod(value.shape[len(value.shape) + value.axis + 1 :])
    for axis in range(-1, -len(shape) - 1, -1):
        if shape[axis] == size and math.prod(shape[len(shape) + axis + 1 :]) == tail:
            return axis
    return None if size == 1 else LOST


def _strip_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape
