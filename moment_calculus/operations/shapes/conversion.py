"""The same values in another precision, or on another device."""

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
    """Another precision, or another device.

    Args:
        convert: converts an array.
    """

    convert: Callable[[Array], Array]

    def move(self, array: Array) -> Array:
        """Converted."""
        return self.convert(array)

    def covariance(self) -> Array:
        """Converted."""
        return self.convert(self.source.joint_covariance())

    @property
    def kept(self) -> Entries | None:
        """Those of the source: their numbers are no numbers of the program."""
        return entries_of(self.source)

    def follows(self, place: int) -> bool:
        """Always."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Converted."""
        return self.convert(cross)


def converted(value: Any, convert: Callable[[Array], Array]) -> Any:
    """The same value in another precision or on another device.

    Args:
        value: value or array.
        convert: converts an array.
    """
    if isinstance(value, Deferred):
        return value.moved(lambda v: converted(v, convert))
    if isinstance(value, Composite):
        return value.converted(convert)
    if not isinstance(value, Gaussian):
        return convert(value)
    step, dense = Converted(value, convert), value.has_covariance
    return moved(step, value.axis, dense=dense, joint=True, ties=value.ties)
