"""Steps of values of another shape, and of values whose feature axis becomes another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array, diagonal_blocks
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.values import Gaussian
from moment_calculus.values.layout import batch_shape, rank_of_batch


@dataclass(frozen=True, eq=False)
class Reshaped(Moved):
    """Another shape; subclasses know what becomes of the features.

    Args:
        shape: of the result.
    """

    shape: tuple[int, ...]

    def move(self, array: Array) -> Array:
        """Reshaped."""
        return namespace(array).reshape(array, self.shape)


@dataclass(frozen=True, eq=False)
class Split(Reshaped):
    """A trailing feature axis that is split: the last part keeps its covariance."""

    def covariance(self) -> Array:
        """The blocks on the diagonal."""
        parts = self.shape[len(self.source.shape) - 1 :]
        return diagonal_blocks(self.source.joint_covariance(), parts)


@dataclass(frozen=True, eq=False)
class Widened(Reshaped):
    """A value with too few axes: the missing feature axis has size one."""

    identity = True


@dataclass(frozen=True, eq=False)
class Unfeatured(Reshaped):
    """A value that is to be expanded along another axis than that of its features."""

    @property
    def in_place(self) -> bool:  # type: ignore[override]
        """Of independent components nothing is lost."""
        return self.source.independent and self.shape == self.source.shape


@dataclass(frozen=True, eq=False)
class Refeatured(Reshaped):
    """A single feature on another axis of size one."""

    def follows(self, place: int) -> bool:
        """Of what is no batch."""
        return True

    def through(self, place: int, cross: Array) -> Array | None:
        """As it is, without a batch whose axes would have to change places."""
        if any(n != 1 for n in cross.shape[:-2]):
            return None
        return namespace(cross).reshape(cross, cross.shape[-2:])


@dataclass(frozen=True, eq=False)
class Featured(Moved):
    """An axis of size one of the batch becomes the feature axis, so the batch loses it.

    Args:
        axis: that axis.
    """

    axis: int

    def move(self, array: Array) -> Array:
        """As it is."""
        return array

    def follows(self, place: int) -> bool:
        """Of what has that axis too."""
        return True

    def meet(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Unknown of a value with more axes of the batch, beside which the elements are shifted."""
        known = rank_of_batch(other.shape, other.axis) <= rank_of_batch(value.shape, value.axis)
        return super().meet(value, other, query) if known else None

    def through(self, place: int, cross: Array) -> Array | None:
        """Without the axis."""
        lead = (1,) * (len(self.source.shape) - len(cross.shape) + 2)
        batch = (*lead, *cross.shape[:-2])
        if batch[self.axis] != 1:
            return None
        shape = (*batch_shape(batch, self.axis), *cross.shape[-2:])
        return namespace(cross).reshape(cross, shape)
