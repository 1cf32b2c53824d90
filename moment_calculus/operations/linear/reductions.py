"""Sums, means, cumulative sums and products along axes of live values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, constants, namespace, positive_part, transpose
from moment_calculus.operations.elementwise.products import PRODUCT, multiply
from moment_calculus.operations.elementwise.sums import DEPENDENCE_REMEDY, subtract
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.linear.maps import linear, map_features, with_linked_covariance
from moment_calculus.operations.linear.positive_terms import sum_of_positive
from moment_calculus.operations.shapes.indexing import ALL, take, unstack
from moment_calculus.operations.shapes.moves import Moved, moved, with_batch
from moment_calculus.operations.shapes.reshaping import flattened, reshape
from moment_calculus.operations.windows.pooling import sum_of_dependent
from moment_calculus.values import Gaussian, Opaque, Spread, Ties, Value
from moment_calculus.values.ancestry import as_vector, is_rearranged
from moment_calculus.values.protocols import MapStep
from moment_calculus.values.spread import batch_shape, broadcast_shape

__all__ = ["cumulative_sum", "difference", "product", "reduce_mean", "reduce_sum"]


@dataclass(frozen=True, eq=False)
class _SumOverBatch(Moved, MapStep):
    """Step of a sum over axes of the batch, which stay with size one."""

    axes: tuple[int, ...]  # not negative
    drops_covariance: bool = False
    combines_elements = True

    def positive_sum(self, value: Gaussian) -> Any:
        """Return the sum as a function of its terms, if these are few and positive."""
        return sum_of_positive(self.source, self.axes[0]) if len(self.axes) == 1 else None

    def move(self, array: Array) -> Array:
        return namespace(array).sum(array, axis=self.axes, keepdims=True)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        shape = (len(cotangent), *self.source.shape)
        return namespace(cotangent).broadcast_to(cotangent, shape)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis + len(value.shape) not in self.axes else None

    @property
    def batch_axes(self) -> tuple[int, ...]:
        """The summed axes as negative axes of the batch, which has no feature axis."""
        axis, rank = self.source.axis, len(self.source.shape)
        feature, count = rank + (axis or 0), rank - (axis is not None)
        return tuple(a - (axis is not None and a > feature) - count for a in self.axes)

    def covariance(self) -> Array:
        """Sum the covariances of the elements, which are independent of each other."""
        covariance = self.source.joint_covariance()
        batch_axes = tuple(axis - 2 for axis in self.batch_axes)
        return namespace(covariance).sum(covariance, axis=batch_axes, keepdims=True)

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        batch = batch_shape(other.shape, other.axis)
        # Axes along which the other value has elements of its own: each of these elements
        # depends on one term of the sum only, if the elements are independent.
        own_axes = [axis for axis in self.batch_axes if -axis <= len(batch) and batch[axis] > 1]
        if own_axes and not _are_side_by_side(self.source, other):
            swapped = query.by_inputs(other, value)
            return None if swapped is None else transpose(swapped)
        cross = query.cross(self.source, other)
        if cross is None:
            return None
        xp, own = namespace(cross), batch_shape(self.source.shape, self.source.axis)
        wide = xp.broadcast_to(cross, (*broadcast_shape(own, batch), *cross.shape[-2:]))
        over = tuple(axis - 2 for axis in self.batch_axes if axis not in own_axes)
        return xp.sum(wide, axis=over, keepdims=True) if over else wide


def _are_side_by_side(left: Gaussian, right: Gaussian) -> bool:
    """Whether each element of one batch depends only on the same element of the other batch."""
    ours, theirs = (batch_shape(value.shape, value.axis) for value in (left, right))
    same = theirs[-len(ours) :] == ours
    return (
        same
        and left.batch_independent
        and right.batch_independent
        and not is_rearranged(left, right)
    )


def reduce_sum(value: Any, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Any:
    """Sum over axes (by default all), exactly where the covariance of the terms is known.

    Over the feature axis it is a linear map: in diagonal mode components enter as
    independent, unless they propagate a covariance. Over axes of the batch, dependent
    elements of unknown covariance raise UnsupportedMoments.
    """
    axes = range(len(value.shape)) if axes is None else axes
    if not hasattr(value, "gaussian"):
        return namespace(value).sum(value, axis=tuple(axes), keepdims=keepdims)
    result = value.gaussian()
    rank = len(result.shape)
    features = [axis for axis in axes if axis - rank == result.axis]
    result = _sum_batch(result, [axis for axis in axes if axis not in features])
    if features:
        result = _sum_features(result)
    if keepdims:
        return result
    return reshape(result, [n for axis, n in enumerate(result.shape) if axis not in axes])


def reduce_mean(value: Any, axes: Sequence[int] | None = None, *, keepdims: bool = False) -> Any:
    """Return the mean over axes (by default all); see :func:`reduce_sum`."""
    axes = range(len(value.shape)) if axes is None else axes
    count = math.prod(value.shape[axis] for axis in axes)
    if not count:
        raise UnsupportedMoments(
            "a mean over no elements", sites=value.sites, remedy="leave the empty axis out"
        )
    summed = reduce_sum(value, axes, keepdims=keepdims)
    return scale_shift(summed, 1.0 / count) if hasattr(summed, "sites") else summed / count


def _sum_features(value: Gaussian) -> Gaussian:
    value = with_linked_covariance(value)
    axis, xp = value.axis, namespace(value.mean)
    if value.has_covariance:
        lead = batch_shape(value.shape, axis)
        features = len(value.shape) + (axis or 0)
        shape = (*lead[:features], 1, *lead[features:])
        variance = xp.reshape(positive_part(xp.sum(value.covariance, axis=(-2, -1))), shape)
    else:
        variance = xp.sum(value.variance, axis=axis, keepdims=True)
    return Gaussian(
        xp.sum(value.mean, axis=axis, keepdims=True),
        Spread(variance),
        SumOverFeatures((value,), assumes_independence=not value.uses_covariance),
        axis=axis,
        ties=value.ties,
        propagation=value.propagation,
    )


@dataclass(frozen=True, eq=False)
class SumOverFeatures(MapStep):
    """Step of the sum over the features, which stay as an axis of size one."""

    inputs: tuple[Gaussian] = field()
    assumes_independence: bool

    def positive_sum(self, value: Gaussian) -> Any:
        """Return the sum as a function of its terms, if these are few and positive."""
        (source,) = self.inputs
        return None if source.axis is None else sum_of_positive(source, source.axis)

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        return _sum_features(*inputs)

    def through(self, input_index: int, cross: Array) -> Array:
        """Sum the rows of the covariance with another value."""
        return namespace(cross).sum(cross, axis=-2, keepdims=True)

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        """Return no index: the value is linear in its only input."""
        return ()

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Repeat the cotangent."""
        shape = (len(cotangent), *self.inputs[0].shape)
        return namespace(cotangent).broadcast_to(cotangent, shape)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        """Return the axis itself, but not that of the features."""
        return axis if axis != value.axis else None


def _sum_batch(value: Gaussian, axes: Sequence[int]) -> Gaussian:
    axes = [axis for axis in axes if value.shape[axis] > 1]
    if not axes:
        return value
    if not value.batch_independent:
        window_sum = sum_of_dependent(value, axes)
        if window_sum is not None:
            return window_sum
        if (vector := _as_vector_along(value, axes)) is not None:
            return _sum_features(_sum_batch(vector, [a for a in axes if a + 1 < len(value.shape)]))
        if (whole := _sum_all_elements(value, axes)) is not None:
            return whole
        _require_independence(value, axes[0], "a sum")
    apart = value.batch_independent
    return with_batch(_SumOverBatch(value, tuple(axes), not apart), value.axis)


def _as_vector_along(value: Gaussian, axes: Sequence[int]) -> Gaussian | None:
    """Return the value with features on its trailing axis, if full mode knows them."""
    if not value.propagation.has_full_covariance or len(value.shape) - 1 not in axes:
        return None
    return as_vector(value)


def _sum_all_elements(value: Gaussian, axes: Sequence[int]) -> Gaussian | None:
    """Sum by the covariance of all elements, which weights have under a full-rank guide."""
    vector = flattened(value) if value.axis == -1 else None
    if vector is None or not vector.has_covariance:
        return None
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(value.shape))
    indices = np.arange(math.prod(shape)).reshape(shape)
    summed = np.broadcast_to(indices, value.shape).reshape(-1) == indices.reshape(-1, 1)
    return reshape(linear(vector, constants(summed, vector.mean)), shape)


def _require_independence(value: Gaussian, axis: int, what: str) -> None:
    if value.independent or value.shape[axis] == 1 or value.propagation.is_backward:
        return
    raise UnsupportedMoments(
        f"{what} over axis {axis} of a value of shape {value.shape}: elements of the batch that "
        f"depend on the same latent site(s) {', '.join(sorted(value.sites))} are dependent, and "
        "their covariance is not known",
        sites=value.sites,
        remedy="sum the inputs of the layer instead, where it is linear; give a factor its terms "
        "without summing them; otherwise " + DEPENDENCE_REMEDY,
    )


def cumulative_sum(value: Any, axis: int, *, reverse: bool = False) -> Any:
    """Return the cumulative sum along an axis, from its end if ``reverse``."""
    if not hasattr(value, "gaussian"):
        return _sums(value, axis, reverse)
    value = value.gaussian()
    if value.shape[axis] == 1:
        return value  # elements may be dependent along the other axes
    if value.axis is not None and axis == len(value.shape) + value.axis:
        triangle = constants(np.tri(value.shape[axis]), value.mean)
        return map_features(value, triangle.mT if reverse else triangle)
    _require_independence(value, axis, "a cumulative sum")
    return moved(_CumulativeSum(value, axis, reverse, not value.independent), value.axis)


def _sums(array: Array, axis: int, reverse: bool) -> Array:
    xp = namespace(array)
    if not reverse:
        return xp.cumulative_sum(array, axis=axis)
    return xp.flip(xp.cumulative_sum(xp.flip(array, axis=axis), axis=axis), axis=axis)


@dataclass(frozen=True, eq=False)
class _CumulativeSum(Moved):
    """Step of cumulative sums along an axis of the batch."""

    axis: int
    reverse: bool  # whether the sums begin at the end
    drops_covariance: bool = False
    combines_elements = True

    def move(self, array: Array) -> Array:
        return _sums(array, self.axis, self.reverse)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis + len(value.shape) != self.axis else None

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        if self.axis != len(value.shape) - 1:
            return None
        vector = as_vector(self.source)
        return None if vector is None else cumulative_sum(vector, self.axis, reverse=self.reverse)


def difference(value: Any, axis: int) -> Value:
    """Return the differences of neighbours along an axis."""
    return subtract(take(value, slice(1, None), axis), take(value, slice(None, -1), axis))


def product(value: Any, axis: int) -> Value:
    """Return the product along an axis of independent components, or of two components."""
    gaussian = value.gaussian()
    if not gaussian.independent and gaussian.shape[axis] > 2:
        raise UnsupportedMoments(
            "a product of more than two dependent components",
            sites=gaussian.sites,
            remedy=DEPENDENCE_REMEDY,
        )
    along_batch = gaussian.axis is None or axis != len(gaussian.shape) + gaussian.axis
    long = gaussian.shape[axis] > 1  # a product of one factor is the factor
    apart = gaussian.independent or not gaussian.propagation.is_backward
    if long and along_batch and apart and gaussian.propagation.replacement(PRODUCT) is None:
        return _product_over_batch(gaussian, axis)
    return reduce(multiply, unstack(gaussian, axis))


def _product_over_batch(value: Gaussian, axis: int) -> Gaussian:
    """Return Π m and Π (m² + v) − Π m² along an axis of the batch."""
    _require_independence(value, axis, "a product")
    mean, variance = 1.0, 0.0
    # Factor by factor, so that the variance is a sum of positive terms.
    for i in range(value.shape[axis]):
        slot = (*(ALL,) * axis, slice(i, i + 1))
        own, spread = value.mean[slot], value.variance[slot]
        variance = variance * (spread + own * own) + mean * mean * spread
        mean = mean * own
    result = Gaussian(
        mean,
        Spread(variance),
        Opaque((value,)),
        axis=value.axis,
        ties=Ties.NONE,
        propagation=value.propagation,
    )
    return reshape(result, (*value.shape[:axis], *value.shape[axis + 1 :]))
