"""Selection of elements by index arrays on some axes, as gather primitives do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.function_bounds import value_range
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.features import index_features
from moment_calculus.operations.shapes.indexing import index_batch
from moment_calculus.operations.shapes.moves import (
    Moved,
    may_lose_dependence,
    move_axis,
    moved,
    permute,
    warn_dropped,
)
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Deferred, Gaussian, Ties, features_last
from moment_calculus.values.layout import batch_shape, broadcast_shape
from moment_calculus.values.spread import none_or_all


@dataclass(frozen=True, eq=False)
class Gathered(Moved):
    """Step that selects elements along one axis, for every element of the other axes."""

    indices: Array  # integers of the source's shape, except along the axis
    axis: int  # not negative

    def move(self, array: Array) -> Array:
        """Select the elements of an array."""
        return namespace(array).take_along_axis(array, self.indices, axis=self.axis)


@dataclass(frozen=True, eq=False)
class GatheredFeatures(Gathered):
    """Step that selects features for every element of the batch."""

    def covariance(self) -> Array:
        """Select rows and columns of the joint covariance."""
        return self.through(0, self.through(0, self.source.joint_covariance()).mT)

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Select rows of the covariance with another value."""
        xp, axis = namespace(cross), self.source.axis
        last, batch = features_last(self.indices, axis), batch_shape(self.source.shape, axis)
        # The other value may have more axes.
        batch = broadcast_shape(batch, tuple(cross.shape[:-2]))
        places = xp.broadcast_to(last[..., None], (*batch, last.shape[-1], cross.shape[-1]))
        wide = xp.broadcast_to(cross, (*batch, *cross.shape[-2:]))
        return xp.take_along_axis(wide, places, axis=-2)


def gather(value: Any, indices: Array, axis: int) -> Any:
    """Select elements along one axis, for every element of the other axes.

    ``indices`` holds non-negative integers of the value's shape, except along the axis.
    Along the feature axis the joint covariance is kept; along others it is dropped, with
    a warning.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: gather(v, indices, axis))
    if not isinstance(value, Gaussian):
        return namespace(value).take_along_axis(value, indices, axis=axis)
    if value.axis is not None and axis == len(value.shape) + value.axis:
        full, ties = value.propagation.full, max(value.ties, Ties.FEATURES)
        step = GatheredFeatures(value, indices, axis)
        return moved(step, value.axis, dense=full, joint=True, ties=ties)
    if value.axis is not None and may_lose_dependence(value):
        warn_dropped(value, "a choice of elements of the batch for every feature")
    return moved(Gathered(value, indices, axis), value.axis)


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
        return _of_array(value, axes, indices)
    features = None if value.axis is None else len(value.shape) + value.axis
    if features not in axes:
        return _of_batch(value, axes, indices, features, distinct)
    if axes == [features]:
        return _of_features(value, indices[features], distinct)
    return _of_both(value, axes, indices, distinct)


def _of_array(array: Array, axes: Sequence[int], indices: Mapping[int, Array]) -> Array:
    rest = [axis for axis in range(len(array.shape)) if axis not in axes]
    front = namespace(array).permute_dims(array, (*axes, *rest))
    return front[tuple(indices[axis] for axis in axes)]


@dataclass(frozen=True, eq=False)
class IndexedAxes(Moved):
    """Step that selects elements at index arrays of features and batch together."""

    axes: tuple[int, ...]  # in order
    indices: Mapping[int, Array]  # an index array of each axis

    def move(self, array: Array) -> Array:
        """Select the elements of an array."""
        return _of_array(array, self.axes, self.indices)


def _of_batch(
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


def _of_features(value: Gaussian, places: Array, distinct: bool) -> Gaussian:
    last = move_axis(value, len(value.shape) + (value.axis or 0), len(value.shape) - 1)
    batch = batch_shape(value.shape, value.axis)
    if not places.shape:
        return index_features(last, places)
    flat = index_features(last, namespace(places).reshape(places, (-1,)), distinct=distinct)
    return reshape(move_axis(flat, len(batch), 0), (*places.shape, *batch))


def _of_both(
    value: Gaussian, axes: list[int], indices: Mapping[int, Array], distinct: bool
) -> Gaussian:
    """Select along the feature axis and the batch; only one known feature keeps dependence."""
    features = len(value.shape) + (value.axis or 0)
    features_range = value_range(indices[features])
    if features_range is not None and features_range[0] == features_range[1]:
        last = move_axis(value, features, len(value.shape) - 1)
        left = {axis - (axis > features): indices[axis] for axis in axes if axis != features}
        return index_axes(index_features(last, int(features_range[0])), left, distinct=distinct)
    # Independent components lose nothing; where one may occur twice they become scalars.
    step = IndexedAxes(value, tuple(axes), indices)
    scalars = not step.move(value.mean).shape or (value.independent and not distinct)
    ties = none_or_all(value.independent and distinct)
    result = moved(step, None if scalars else -1, ties=ties)
    if may_lose_dependence(value):
        warn_dropped(value, "an index of features and batch together")
    return result
