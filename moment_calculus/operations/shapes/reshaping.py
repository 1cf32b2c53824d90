"""Reshapes and broadcasts of live values, and arrays traced back to vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from moment_calculus.functions.combinators import with_arrays_moved
from moment_calculus.numerics.arrays import Array, constants, device, diagonal_blocks, namespace
from moment_calculus.operations.shapes.moves import (
    Moved,
    Permuted,
    may_lose_dependence,
    moved,
    swap_last,
    vector_of_scalars,
    with_batch,
    without_covariance,
)
from moment_calculus.operations.shapes.selection import index_features
from moment_calculus.values import Deferred, Gaussian, Ties
from moment_calculus.values.ancestry import ancestors, from_vector_parts
from moment_calculus.values.elementwise import affine, apply_activation
from moment_calculus.values.lags import Along, Pairs, lag_covariance, pairs_of_terms, remaining
from moment_calculus.values.protocols import MapStep, Symmetric
from moment_calculus.values.spread import batch_shape, none_or_all, rank_of_batch

__all__ = ["broadcast", "reshape"]


@dataclass(frozen=True, eq=False)
class Reshaped(Moved):
    """Step of a reshape; subclasses know what becomes of the features."""

    shape: tuple[int, ...]  # of the result

    def move(self, array: Array) -> Array:
        """Reshape an array."""
        return namespace(array).reshape(array, self.shape)

    def move_each(self, arrays: Array) -> Array:
        """Reshape each array."""
        return namespace(arrays).reshape(arrays, (arrays.shape[0], *self.shape))

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Reshape the cotangent back."""
        return namespace(cotangent).reshape(cotangent, (-1, *self.source.shape))

    def same_rows(self, value: Gaussian, index: int, axis: int) -> int | None:
        """Return the axis with as many elements before it, and of the same size; else None."""
        old, new = self.source.shape, self.shape
        before, size = math.prod(new[:axis]), new[axis]
        starts = (math.prod(old[:index]) for index in range(len(old)))
        found = [p for p, start in enumerate(starts) if start == before and old[p] == size]
        return found[0] - len(old) if found else None


@dataclass(frozen=True, eq=False)
class _SplitFeatures(Reshaped):
    """Step that splits the trailing feature axis; the last part keeps its covariance."""

    def covariance(self) -> Array:
        parts = self.shape[len(self.source.shape) - 1 :]
        return diagonal_blocks(self.source.joint_covariance(), parts)

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Split the rows of the covariance, of one vector with another or with parts alike."""
        if len(self.source.shape) != 1:
            return None
        xp, batch, lead = namespace(cross), self.shape[:-1], tuple(cross.shape[:-2])
        rows = xp.reshape(cross, (*lead, *self.shape, cross.shape[-1]))
        if math.prod(lead) == 1:
            return rows[(0,) * len(lead)]
        if lead != batch or len(batch) != 1:
            return None
        own = constants(np.eye(batch[0])[..., None, None], cross)
        return xp.sum(own * rows, axis=0)


@dataclass(frozen=True, eq=False)
class _Unsqueezed(Reshaped):
    """Step that adds axes, with a feature axis of size one, to a batch of scalars."""

    identity = True


@dataclass(frozen=True, eq=False)
class _WithoutCovariance(Reshaped):
    """Step that changes the feature axis of a value without its covariance."""

    @property
    def componentwise(self) -> bool:  # type: ignore[override]
        """Whether components are independent and stay in place, so that nothing is lost."""
        return self.source.independent and self.shape == self.source.shape


@dataclass(frozen=True, eq=False)
class _OnOtherAxis(Reshaped):
    """Step that moves a single feature to another axis of size one."""

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Keep the covariance with another value; None if there is a batch to rearrange."""
        if any(n != 1 for n in cross.shape[:-2]):
            return None
        return namespace(cross).reshape(cross, cross.shape[-2:])


@dataclass(frozen=True, eq=False)
class _OnBatchAxis(Moved):
    """Step that makes an axis of size one of the batch the feature axis."""

    axis: int

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return None for a value with more batch axes, with which it would be misaligned."""
        ranks = [rank_of_batch(each.shape, each.axis) for each in (value, other)]
        known = ranks[1] <= ranks[0] or math.prod(value.shape) == 1
        return super().covariance_with(value, other, query) if known else None

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Drop the axis from the batch of the covariance; None if it is not of size one."""
        if math.prod(self.source.shape) == 1 < math.prod(cross.shape[:-2]):
            return cross  # the batch is that of the other value
        lead = (1,) * (len(self.source.shape) - len(cross.shape) + 2)
        batch = (*lead, *cross.shape[:-2])
        if batch[self.axis] != 1:
            return None
        shape = (*batch_shape(batch, self.axis), *cross.shape[-2:])
        return namespace(cross).reshape(cross, shape)


def flattened(value: Gaussian) -> Gaussian | None:
    """Return all elements of an array on one axis, row by row, with their covariance.

    The array must come from a vector by reshapes, permutations, affine maps and functions
    of each element; for other values the result is None.
    """
    values = value.memo.values
    if "flattened" not in values:
        known = _flattened(value)
        if known is None:
            return None
        values["flattened"] = known
    return values["flattened"]


def _flattened(value: Gaussian) -> Gaussian | None:
    if value.mean.ndim == 1:
        return value if value.axis == -1 else None
    step = value.step
    known = step.affine is not None or step.function is not None
    if not (known or isinstance(step, Reshaped | Permuted)):
        return None
    source = step.inputs[0] if step.function is None else step.function[0]
    vector = flattened(source)
    if vector is None or isinstance(step, Reshaped):
        return vector
    if isinstance(step, Permuted):
        return _permuted(vector, step)
    if step.function is not None:
        return _image(vector, step.function[1], value.shape)
    assert step.affine is not None
    scale, shift = (_like_vector(part, value.shape) for part in step.affine[1:])
    return affine(vector, scale, shift)


def _permuted(vector: Gaussian, step: Permuted) -> Gaussian:
    shape = step.source.shape
    numbers = step.move(np.arange(math.prod(shape)).reshape(shape)).reshape(-1)
    return index_features(vector, numbers, distinct=True)


def _image(vector: Gaussian, function: Any, shape: tuple[int, ...]) -> Gaussian:
    return apply_activation(
        vector, with_arrays_moved(function, lambda part: _like_vector(part, shape), shape)
    )


def _like_vector(operand: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(operand, int | float):
        return operand
    xp = namespace(operand)
    return xp.reshape(xp.broadcast_to(operand, shape), (-1,))


@dataclass(frozen=True, eq=False)
class _FeaturesAsBatch(Moved):
    """Step that makes a batch of scalars of the features of a vector."""

    shape: tuple[int, ...]  # of the result

    def move(self, array: Array) -> Array:
        """Reshape an array."""
        return namespace(array).reshape(array, self.shape)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Reshape the cotangent back."""
        return namespace(cotangent).reshape(cotangent, (-1, *self.source.shape))

    def through(self, input_index: int, cross: Array) -> Array:
        """Choose the row of its own feature for every scalar."""
        xp, (size, columns) = namespace(cross), cross.shape[-2:]
        numbers = self.move(xp.arange(size, device=device(cross)))[..., None]
        batch = np.broadcast_shapes(cross.shape[:-2], self.shape)
        wide = xp.broadcast_to(cross, (*batch, size, columns))
        rows = xp.broadcast_to(numbers[..., None], (*batch, 1, columns))
        return xp.take_along_axis(wide, rows, axis=-2)

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the source, if all its features are on the trailing axis."""
        return self.source if self.source.shape == self.shape else None


def as_scalars(value: Gaussian) -> Gaussian | None:
    """Return a value as a batch of scalars that keeps its dependence on others; None if unknown.

    It must be one vector, along any axis, or come from one by what :func:`flattened` knows.
    """
    size = math.prod(value.shape)
    one_vector = value.axis is not None and value.shape[value.axis] == size
    vector = reshape(value, (size,)) if one_vector else flattened(value)
    if vector is None or vector.axis != -1:
        return None
    return moved(_FeaturesAsBatch(vector, value.shape), None)


def has_crossed_features(value: Gaussian) -> bool:
    """Whether a batch of scalars was computed from features of vectors along several axes."""
    return any(isinstance(part.step, _FeaturesAsBatch) for part in ancestors(value))


OWN_AXIS = object()  # argument of broadcast: the feature axis stays
LOST = object()  # a feature axis that does not survive a reshape


@dataclass(frozen=True, eq=False)
class Expanded(Moved, MapStep):
    """Step that repeats a value along axes of the batch or of the features."""

    shape: tuple[int, ...]  # of the result
    axis: int | None  # the feature axis of source and result
    may_repeat = True
    repeats = True

    @cached_property
    def size(self) -> int:
        """Number of features of the result."""
        return 1 if self.axis is None else self.shape[self.axis]

    @cached_property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the number of features stays the same."""
        source, axis = self.source.shape, self.axis
        return self.size == (1 if axis is None or len(source) < -axis else source[axis])

    def move(self, array: Array) -> Array:
        """Broadcast an array."""
        return namespace(array).broadcast_to(array, self.shape)

    @property
    def expected_map(self) -> tuple[Gaussian, Array] | None:  # type: ignore[override]
        """Return the source and a column of ones, where one feature is repeated."""
        if self.axis != -1 or self.source.axis != -1 or self.source.shape[-1] != 1:
            return None
        xp, like = namespace(self.source.mean), self.source.mean
        return self.source, xp.ones((self.size, 1), dtype=like.dtype, device=device(like))

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian | None:
        """Return None in a sweep, for which the repetition follows functions of the source."""
        backward = self.source.propagation.is_backward
        return None if backward else super().pull_move_through(move, like)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent; its sums over repetitions are left to the caller."""
        return cotangent

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the covariances of the source, repeated."""
        return pairs_of_terms(value, pairs) if self.identity else NotImplemented

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        """Return the axis itself."""
        return axis

    def rearrange_rows(self, array: Array) -> Array | None:
        """Broadcast the batch of an array of other features."""
        if self.source.axis != -1 or self.axis != -1 or self.source.shape[-1] != self.shape[-1]:
            return None
        return namespace(array).broadcast_to(array, (*self.shape[:-1], array.shape[-1]))

    def covariance(self) -> Array:
        """Broadcast the joint covariance."""
        covariance, batch = self.source.joint_covariance(), batch_shape(self.shape, self.axis)
        return namespace(covariance).broadcast_to(covariance, (*batch, self.size, self.size))

    def through(self, input_index: int, cross: Array) -> Array:
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


def narrow(value: Gaussian) -> Gaussian:
    """Return the value that was broadcast to this one."""
    while isinstance(value.step, Expanded):
        value = value.step.source
    return value


def is_broadcast(value: Gaussian) -> bool:
    """Whether a value has the elements of the source of its step, broadcast, on whatever axis."""
    step = value.step
    if isinstance(step, _Unsqueezed | _WithoutCovariance | _OnOtherAxis | _OnBatchAxis):
        source = step.source.shape
        return value.shape == (1,) * (len(value.shape) - len(source)) + source
    return isinstance(step, Expanded)


def _as_vector(source: Gaussian, shape: tuple[int, ...]) -> Gaussian | None:
    if source.shape and source.shape[-1] != 1:
        return from_vector_parts(lambda part: broadcast(part, shape), source)
    return broadcast(source, shape, -1) if source.axis is None else None


@dataclass(frozen=True, eq=False)
class _Regrouped(Reshaped):
    """Step of a reshape of the batch that keeps the features."""

    axis: int | None

    def rearrange_rows(self, array: Array) -> Array | None:
        if self.source.axis != -1 or self.axis != -1:
            return None
        return namespace(array).reshape(array, (*self.shape[:-1], array.shape[-1]))

    @cached_property
    def identity(self) -> bool:  # type: ignore[override]
        """Whether the batch gains or loses only leading axes of size one."""
        old = batch_shape(self.source.shape, self.source.axis)
        return _strip_ones(batch_shape(self.shape, self.axis)) == _strip_ones(old)

    def covariance(self) -> Array:
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
        axes = [axis for axis, n in enumerate(old) if n != 1]
        if [old[axis] for axis in axes] != [n for n in self.shape if n != 1]:
            return NotImplemented
        before = [0] * len(old)
        steps = [o for o, n in zip(offset, self.shape, strict=True) if n != 1]
        for axis, step in zip(axes, steps, strict=True):
            before[axis] = step
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
    if value.mean.shape == shape and value.axis == axis:
        return value
    return _expanded(_on_axis(value, axis), shape, axis)


def _on_axis(value: Gaussian, axis: int | None) -> Gaussian:
    """Give a value that will be expanded the feature axis ``axis``."""
    symmetric = isinstance(value.step, Symmetric) and (axis, value.axis) == (-2, -1)
    if value.axis == axis or symmetric:
        return swap_last(value) if symmetric else value
    missing = 0 if axis is None else max(0, -axis - len(value.shape))
    shape = (1,) * missing + value.shape
    if axis is not None and value.axis is None:
        if missing:
            return moved(_Unsqueezed(value, shape), axis, ties=value.ties)
        if value.shape[axis] == 1:
            return moved(_OnBatchAxis(value, axis), axis, ties=value.ties)
    elif (
        axis is not None and value.axis is not None and value.shape[value.axis] == shape[axis] == 1
    ):
        return moved(_OnOtherAxis(value, shape), axis, ties=value.ties)
    if (vector := vector_of_scalars(value, axis)) is not None:
        return vector
    if may_lose_dependence(value):
        value = without_covariance(value, f"an elementwise operation along axis {axis}")
    return moved(_WithoutCovariance(value, shape), axis, ties=none_or_all(value.independent))


def _expanded(value: Gaussian, shape: tuple[int, ...], axis: int | None) -> Gaussian:
    old = value.shape
    if old == shape:
        return value
    step = Expanded(value, shape, axis)
    ties = value.ties if step.identity else max(value.ties, Ties.FEATURES)
    size, wide = math.prod(batch_shape(old, axis)), math.prod(batch_shape(shape, axis))
    return moved(
        step,
        axis,
        dense=value.has_covariance if step.identity else value.propagation.has_full_covariance,
        joint=not step.identity or axis is not None,
        ties=ties if size == wide else Ties.ALL,
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
    step: Any = value.step
    if isinstance(step, Reshaped) and step.source.shape == shape and len(shape) < value.mean.ndim:
        return step.source  # its dependence on others is known without the way back
    known = value.memo.values
    result = known.get((Reshaped, shape))
    if result is None:
        result = known[Reshaped, shape] = _reshaped(value, shape)
    return result


def _reshaped(value: Gaussian, shape: tuple[int, ...]) -> Gaussian:
    axis = _surviving_axis(value, shape)
    ties = none_or_all(value.independent)
    if axis is LOST and _is_split(value, shape):
        dense = value.has_covariance and not value.independent
        return moved(_SplitFeatures(value, shape), -1, dense=dense, joint=True, ties=ties)
    if axis is LOST:
        if value.has_covariance and (vector := flattened(value)) not in (None, value):
            return reshape(vector, shape)
        if may_lose_dependence(value):
            value = without_covariance(value, f"a reshape from {value.shape} to {shape}")
        return moved(Reshaped(value, shape), -1 if shape else None, ties=ties)
    return with_batch(_Regrouped(value, shape, axis), axis)


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
