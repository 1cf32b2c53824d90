"""Steps of reshapes, and of changes of the feature axis that keep the elements in place."""

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
    """Step of a reshape; subclasses know what becomes of the features."""

    shape: tuple[int, ...]  # of the result

    def move(self, array: Array) -> Array:
        """Reshape an array."""
        return namespace(array).reshape(array, self.shape)


@dataclass(frozen=True, eq=False)
class SplitFeatures(Reshaped):
    """Step that splits the trailing feature axis; the last part keeps its covariance."""

    def covariance(self) -> Array:
        """Return the diagonal blocks of the joint covariance."""
        parts = self.shape[len(self.source.shape) - 1 :]
        return diagonal_blocks(self.source.joint_covariance(), parts)


@dataclass(frozen=True, eq=False)
class Unsqueezed(Reshaped):
    """Step that adds axes, with a feature axis of size one, to a batch of scalars."""

    identity = True


@dataclass(frozen=True, eq=False)
class WithoutCovariance(Reshaped):
    """Step that changes the feature axis of a value without its covariance."""

    @property
    def componentwise(self) -> bool:  # type: ignore[override]
        """Whether components are independent and stay in place, so that nothing is lost."""
        return self.source.independent and self.shape == self.source.shape


@dataclass(frozen=True, eq=False)
class OnOtherAxis(Reshaped):
    """Step that moves a single feature to another axis of size one."""

    def follows(self, place: int) -> bool:
        """Return True, although :meth:`through` is unknown for a batch."""
        return True

    def through(self, place: int, cross: Array) -> Array | None:
        """Keep the covariance with another value; None if there is a batch to rearrange."""
        if any(n != 1 for n in cross.shape[:-2]):
            return None
        return namespace(cross).reshape(cross, cross.shape[-2:])


@dataclass(frozen=True, eq=False)
class OnBatchAxis(Moved):
    """Step that makes an axis of size one of the batch the feature axis."""

    axis: int

    def move(self, array: Array) -> Array:
        """Return the array as it is."""
        return array

    def follows(self, place: int) -> bool:
        """Return True, although :meth:`through` is unknown where that axis is not of size one."""
        return True

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return None for a value with more batch axes, with which it would be misaligned."""
        known = rank_of_batch(other.shape, other.axis) <= rank_of_batch(value.shape, value.axis)
        return super().covariance_with(value, other, query) if known else None

    def through(self, place: int, cross: Array) -> Array | None:
        """Drop the axis from the batch of the covariance; None if it is not of size one."""
        lead = (1,) * (len(self.source.shape) - len(cross.shape) + 2)
        batch = (*lead, *cross.shape[:-2])
        if batch[self.axis] != 1:
            return None
        shape = (*batch_shape(batch, self.axis), *cross.shape[-2:])
        return namespace(cross).reshape(cross, shape)
