"""Conversion of live values to another precision or another device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.shapes.moves import Moved, moved
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.entries import Entries, entries_of


@dataclass(frozen=True, eq=False)
class Converted(Moved):
    """Step of a conversion to another precision or device."""

    convert: Callable[[Array], Array]

    def move(self, array: Array) -> Array:
        """Convert an array."""
        return self.convert(array)

    def covariance(self) -> Array:
        """Convert the joint covariance of the source."""
        return self.convert(self.source.joint_covariance())

    @property
    def site_entries(self) -> Entries | None:
        """Return the entries of the source: their integer numbers are not converted."""
        return entries_of(self.source)

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Convert the covariance with another value."""
        return self.convert(cross)


def converted(value: Any, convert: Callable[[Array], Array]) -> Any:
    """Return a value or array in another precision or on another device."""
    if isinstance(value, Deferred):
        return value.moved(lambda v: converted(v, convert))
    if isinstance(value, Composite):
        return value.converted(convert)
    if not isinstance(value, Gaussian):
        return convert(value)
    step, dense = Converted(value, convert), value.has_covariance
    return moved(step, value.axis, dense=dense, joint=True, ties=value.ties)
