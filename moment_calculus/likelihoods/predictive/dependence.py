"""Which elements of an observed site depend on each other, and dependent ones as one vector."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.composite import Composite
from moment_calculus.operations.elementwise.sums import aligned, ties_of
from moment_calculus.operations.shapes.flattened import flattened
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.ancestry import shifted_from
from moment_calculus.values.support import overlap
from moment_calculus.values.vectors import as_vector

Axes = Collection[int]


@dataclass(frozen=True, eq=False)
class Parameter:
    """A random parameter of the elements of a site.

    Args:
        gaussian: the Gaussian behind it.
        own: number of its trailing axes that belong to an element, such as that of classes.
    """

    gaussian: Gaussian
    own: int = 0

    @staticmethod
    def of(value: Any, rank: int) -> Parameter:
        """The parameter that a value is.

        Args:
            value: Gaussian, function of one, or composite of one.
            rank: number of axes of the batch of elements; what exceeds it belongs to an element.
        """
        source = value.source if isinstance(value, Composite) else getattr(value, "base", value)
        source = source if isinstance(source, Gaussian) else source.gaussian()
        return Parameter(source, max(0, len(source.shape) - rank))

    def size(self, axis: int) -> int:
        """How many different components it has along an axis of the elements.

        Args:
            axis: negative.
        """
        shape = shifted_from(self.gaussian).shape
        lead = shape[: len(shape) - self.own]
        return lead[axis] if -axis <= len(lead) else 1

    def tied(self, axes: Axes) -> set[int]:
        """Axes of the elements along which it may depend on itself.

        Along those that the diagonal propagation of a value takes as independent it does not,
        by definition; repeated components are one component under any propagation.

        Args:
            axes: negative axes, along which there are several elements.
        """
        repeated = {axis for axis in axes if self.size(axis) == 1}
        value = self.gaussian
        if value.independent or not value.propagation.full:
            return repeated
        features = None if value.axis is None else value.axis + self.own
        across = {axis for axis in axes if axis != features and not value.apart}
        along = {axis for axis in axes if axis == features and value.has_covariance}
        return across | along | repeated


def tied_axes(parameters: Sequence[Parameter], axes: Axes) -> set[int]:
    """Axes of the elements of a site along which they may depend on each other.

    Args:
        parameters: the random ones.
        axes: negative axes, along which there are several elements.
    """
    found: set[int] = set().union(*(parameter.tied(axes) for parameter in parameters))
    pairs = combinations(parameters, 2) if set(axes) - found else ()
    return set(axes) if any(_is_crossed(*pair) for pair in pairs) else found


def _is_crossed(one: Parameter, other: Parameter) -> bool:
    """Whether elements of one parameter may depend on other elements of another parameter."""
    left, right = one.gaussian, other.gaussian
    if not (overlap(left, right) and left.propagation.full) or left.origin is right.origin:
        return False
    return bool(one.own or other.own) or ties_of(*aligned(left, right)[:2]) == Ties.ALL


@dataclass(frozen=True)
class Layout:
    """The elements of a site as vectors along some of their axes.

    Args:
        shape: of the elements.
        tied: the axes that become one trailing axis, ascending; the others stay, in their order.
    """

    shape: tuple[int, ...]
    tied: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes that stay."""
        axes = range(-len(self.shape), 0)
        return tuple(axis for axis in axes if axis not in self.tied)

    @property
    def vectors(self) -> tuple[int, ...]:
        """Shape of the array of vectors."""
        size = math.prod(self.shape[axis] for axis in self.tied)
        return (*(self.shape[axis] for axis in self.kept), size)

    @property
    def _order(self) -> tuple[int, ...]:
        return tuple(axis + len(self.shape) for axis in (*self.kept, *self.tied))

    def arrange(self, array: Array) -> Array:
        """An array that broadcasts to the elements, as vectors.

        Args:
            array: the array.
        """
        xp = namespace(array)
        wide = xp.broadcast_to(array, self.shape)
        return xp.reshape(xp.permute_dims(wide, self._order), self.vectors)

    def restore(self, sums: Array) -> Array:
        """One number for each vector, with axes of size one in the place of those that were tied.

        Args:
            sums: of the shape of the vectors without the trailing axis.
        """
        ones = (1 if axis in self.tied else n for axis, n in self._sizes())
        return namespace(sums).reshape(sums, tuple(ones))

    def _sizes(self) -> list[tuple[int, int]]:
        return list(zip(range(-len(self.shape), 0), self.shape, strict=True))

    def vector(self, value: Gaussian) -> Gaussian | None:
        """A value that broadcasts to the elements, as vectors with their joint covariance.

        Args:
            value: the value.

        Returns:
            Gaussian with the vectors as features; None where their covariance is not known.
        """
        value = reshape(value, (1,) * (len(self.shape) - len(value.shape)) + value.shape)
        if len(self._wide) > 1:
            return self._flat(value)
        value = permute(value, self._order) if self._order != _in_order(self.shape) else value
        lead, last = self.vectors[:-1], self.vectors[-1]
        places = [self.tied.index(axis) for axis in self._wide]
        size = value.shape[len(lead) + places[0]] if places else 1
        value = reshape(value, (*value.shape[: len(lead)], *([size] if self._wide else ())))
        if not self._wide:
            return reshape(broadcast(value, lead), self.vectors)
        featured = _on_last(value)
        return None if featured is None else broadcast(featured, (*lead, last), -1)

    @property
    def _wide(self) -> tuple[int, ...]:
        """The axes of several elements that become one."""
        return tuple(axis for axis in self.tied if self.shape[axis] > 1)

    def _flat(self, value: Gaussian) -> Gaussian | None:
        """All elements of all axes together."""
        if value.shape != self.shape or any(self.shape[axis] != 1 for axis in self.kept):
            return None
        whole = flattened(value)
        return None if whole is None else reshape(whole, self.vectors)


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _on_last(value: Gaussian) -> Gaussian | None:
    """The value with its trailing axis as feature axis, where that loses nothing."""
    if value.axis == -1:
        return value
    if value.axis is None:
        return broadcast(value, value.shape, -1) if value.shape[-1] == 1 else as_vector(value)
    return None
