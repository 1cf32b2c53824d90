"""Which elements of an observed site depend on each other, and how they become one vector."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.sums import aligned, ties_of
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import broadcast, flattened, reshape
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.ancestry import as_vector, shifted_from
from moment_calculus.values.deferred import Composite
from moment_calculus.values.spread import overlap

Axes = Collection[int]


@dataclass(frozen=True, eq=False)
class Parameter:
    """A random parameter of the elements of a site."""

    gaussian: Gaussian
    event_rank: int = 0  # number of trailing axes inside an element, such as that of classes

    @staticmethod
    def of(value: Any, rank: int) -> Parameter:
        """Return the parameter behind a value, for a batch of elements with ``rank`` axes."""
        source = value.source if isinstance(value, Composite) else getattr(value, "base", value)
        source = source if isinstance(source, Gaussian) else source.gaussian()
        return Parameter(source, max(0, len(source.shape) - rank))

    def size(self, axis: int) -> int:
        """Return the number of different components along a (negative) axis of the elements."""
        shape = shifted_from(self.gaussian).shape
        lead = shape[: len(shape) - self.event_rank]
        return lead[axis] if -axis <= len(lead) else 1

    def dependent_axes(self, axes: Axes) -> set[int]:
        """Return those of the (negative) axes along which components may depend on each other."""
        # A repeated component is one component under any propagation. Apart from that,
        # diagonal propagation takes components as independent by definition.
        repeated = {axis for axis in axes if self.size(axis) == 1}
        value = self.gaussian
        if value.independent or not value.propagation.full:
            return repeated
        features = None if value.axis is None else value.axis + self.event_rank
        across = {axis for axis in axes if axis != features and not value.batch_independent}
        along = {axis for axis in axes if axis == features and value.has_covariance}
        return across | along | repeated


def dependent_axes(parameters: Sequence[Parameter], axes: Axes) -> set[int]:
    """Return the (negative) axes along which the elements of a site may depend on each other."""
    dependent: set[int] = set().union(*(parameter.dependent_axes(axes) for parameter in parameters))
    pairs = combinations(parameters, 2) if set(axes) - dependent else ()
    return set(axes) if any(_is_crossed(*pair) for pair in pairs) else dependent


def _is_crossed(one: Parameter, other: Parameter) -> bool:
    """Tell whether elements of one parameter may depend on other elements of another one."""
    left, right = one.gaussian, other.gaussian
    if not (overlap(left, right) and left.propagation.full) or left.origin is right.origin:
        return False
    return (
        bool(one.event_rank or other.event_rank) or ties_of(*aligned(left, right)[:2]) == Ties.ALL
    )


@dataclass(frozen=True)
class Layout:
    """The elements of a site as vectors along some of their axes."""

    shape: tuple[int, ...]  # of the elements
    vector_axes: tuple[int, ...]  # ascending negative axes, which become one trailing axis

    @property
    def kept(self) -> tuple[int, ...]:
        """Return the axes that stay."""
        axes = range(-len(self.shape), 0)
        return tuple(axis for axis in axes if axis not in self.vector_axes)

    @property
    def vector_shape(self) -> tuple[int, ...]:
        """Return the shape of the array of vectors."""
        size = math.prod(self.shape[axis] for axis in self.vector_axes)
        return (*(self.shape[axis] for axis in self.kept), size)

    @property
    def _order(self) -> tuple[int, ...]:
        return tuple(axis + len(self.shape) for axis in (*self.kept, *self.vector_axes))

    def to_vectors(self, array: Array) -> Array:
        """Return an array that broadcasts to the elements as vectors."""
        xp = namespace(array)
        wide = xp.broadcast_to(array, self.shape)
        return xp.reshape(xp.permute_dims(wide, self._order), self.vector_shape)

    def from_vectors(self, sums: Array) -> Array:
        """Return one number per vector, with axes of size one in place of the tied axes."""
        ones = (1 if axis in self.vector_axes else n for axis, n in self._sizes())
        return namespace(sums).reshape(sums, tuple(ones))

    def _sizes(self) -> list[tuple[int, int]]:
        return list(zip(range(-len(self.shape), 0), self.shape, strict=True))

    def vector(self, value: Gaussian) -> Gaussian | None:
        """Return a value as vectors with their joint covariance; None if that is unknown."""
        value = reshape(value, (1,) * (len(self.shape) - len(value.shape)) + value.shape)
        if len(self._nontrivial_axes) > 1:
            return self._flat(value)
        value = permute(value, self._order) if self._order != _in_order(self.shape) else value
        lead, last = self.vector_shape[:-1], self.vector_shape[-1]
        places = [self.vector_axes.index(axis) for axis in self._nontrivial_axes]
        size = value.shape[len(lead) + places[0]] if places else 1
        value = reshape(
            value, (*value.shape[: len(lead)], *([size] if self._nontrivial_axes else ()))
        )
        if not self._nontrivial_axes:
            return reshape(broadcast(value, lead), self.vector_shape)
        featured = _on_last(value)
        return None if featured is None else broadcast(featured, (*lead, last), -1)

    @property
    def _nontrivial_axes(self) -> tuple[int, ...]:
        """Return the tied axes that have several elements."""
        return tuple(axis for axis in self.vector_axes if self.shape[axis] > 1)

    def _flat(self, value: Gaussian) -> Gaussian | None:
        """Return the elements of all axes as one vector; None if that is impossible."""
        if value.shape != self.shape or any(self.shape[axis] != 1 for axis in self.kept):
            return None
        whole = flattened(value)
        return None if whole is None else reshape(whole, self.vector_shape)


def _in_order(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(len(shape)))


def _on_last(value: Gaussian) -> Gaussian | None:
    """Return the value with its trailing axis as feature axis; None if it has another one."""
    if value.axis == -1:
        return value
    if value.axis is None:
        return broadcast(value, value.shape, -1) if value.shape[-1] == 1 else as_vector(value)
    return None
