"""Sums over axes of the batch, with their covariance with the summed terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array, transpose
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.values import Gaussian
from moment_calculus.values.ancestry import is_rearranged
from moment_calculus.values.layout import batch_shape, broadcast_shape


@dataclass(frozen=True, eq=False)
class SumOverBatch(Moved):
    """Step of a sum over axes of the batch, which stay with size one."""

    axes: tuple[int, ...]  # not negative
    combines_elements = True

    def move(self, array: Array) -> Array:
        """Sum an array over the axes."""
        return namespace(array).sum(array, axis=self.axes, keepdims=True)

    @property
    def places(self) -> tuple[int, ...]:
        """The summed axes as negative axes of the batch, which has no feature axis."""
        axis, rank = self.source.axis, len(self.source.shape)
        feature, count = rank + (axis or 0), rank - (axis is not None)
        return tuple(a - (axis is not None and a > feature) - count for a in self.axes)

    def covariance(self) -> Array:
        """Sum the covariances of the elements, which are independent of each other."""
        covariance = self.source.joint_covariance()
        places = tuple(place - 2 for place in self.places)
        return namespace(covariance).sum(covariance, axis=places, keepdims=True)

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance of the sum with an older value; None if unknown."""
        batch = batch_shape(other.shape, other.axis)
        # Axes along which the other value has elements of its own: each of these elements
        # depends on one term of the sum only, if the elements are independent.
        own_axes = [place for place in self.places if -place <= len(batch) and batch[place] > 1]
        if own_axes and not _are_side_by_side(self.source, other):
            swapped = query.by_inputs(other, value)
            return None if swapped is None else transpose(swapped)
        cross = query.cross(self.source, other)
        if cross is None:
            return None
        xp, own = namespace(cross), batch_shape(self.source.shape, self.source.axis)
        wide = xp.broadcast_to(cross, (*broadcast_shape(own, batch), *cross.shape[-2:]))
        over = tuple(place - 2 for place in self.places if place not in own_axes)
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
