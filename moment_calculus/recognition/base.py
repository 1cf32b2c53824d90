"""Values that remember which part of a composite function they are.

Some hosts spell softmax, logsumexp and normalisations out in sums, differences, exponentials and
quotients. Put together from the moments of these parts, which depend on each other, they would be
far off or have none. So every part is kept symbolic: it knows of which value and over which
elements it was formed, and the last step finds the function as a whole. Where a part is used in
another way it has its own moments, as if nothing had been noted.

Elements are numbered as in the flat source; shape operations move these numbers, so that it does
not matter in which layout a part arrives.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np

Move = Callable[[Any], Any]


class Symbolic:
    """Base of the parts of composites.

    Args:
        shape: shape of the value.
        index: computes which element, or which group of elements, of the flat source each
            component belongs to; of the value's shape.
        sites: names of the latent sites the value depends on.
    """

    def __init__(
        self, shape: tuple[int, ...], index: Callable[[], np.ndarray], sites: frozenset[str]
    ) -> None:
        self.shape, self.sites = tuple(shape), sites
        self._index = index
        self._plain: Callable[[], Any] | None = None
        self._value: Any = None

    @cached_property
    def index(self) -> np.ndarray:
        """Which element or group of the flat source each component belongs to."""
        return self._index()

    def otherwise(self, plain: Callable[[], Any]) -> Self:
        """Say how the value is computed where it is not part of a composite, unless it is known.

        Args:
            plain: computes it; called once at most.
        """
        self._plain = self._plain or plain
        return self

    def computed(self, compute: Callable[[Callable[[], Any]], Any]) -> Self:
        """Say in which surroundings the value is computed on its own.

        Args:
            compute: calls what it is given, and returns its result.
        """
        plain = self._plain
        if plain is not None:
            self._plain = lambda: compute(plain)
        return self

    def value(self) -> Any:
        """The value on its own, computed once."""
        if self._value is None:
            assert self._plain is not None, "otherwise() was not called"
            self._value = self._plain()
        return self._value

    def moved(self, move: Move, plain: Move) -> Self:
        """The same part after a shape operation.

        Args:
            move: the operation on NumPy arrays.
            plain: the operation on values.
        """
        result = copy.copy(self)
        result.__dict__.pop("index", None)
        result.shape = move(np.broadcast_to(np.int8(0), self.shape)).shape
        result._index = lambda: move(self.index)
        result._value = result._plain = None
        return result.otherwise(lambda: plain(self.value()))


class Entries(Symbolic):
    """A part with one component for each element of a view.

    Args:
        view: the view.
    """

    def __init__(self, view: View) -> None:
        super().__init__(view.shape, lambda: view.index, view.sites)
        self.view = view

    def moved(self, move: Move, plain: Move) -> Self:
        """The same part after a shape operation."""
        result = super().moved(move, plain)
        result.view = self.view.moved(move, plain)
        return result


class View(Symbolic):
    """A value, in whatever layout.

    Args:
        source: the value as it was first met.
    """

    def __init__(self, source: Any) -> None:
        shape, size = tuple(source.shape), math.prod(source.shape)
        super().__init__(shape, lambda: np.arange(size).reshape(shape), source.sites)
        self.source = source
        self._value = source

    @property
    def view(self) -> View:
        """The view itself, as of parts that are functions of one."""
        return self

    def sees(self, other: View) -> bool:
        """Whether another view shows the same elements at the same places."""
        same = self.source is other.source and self.shape == other.shape
        return same and np.array_equal(self.index, other.index)


class Reduction:
    """Groups of the elements of a value: those that a reduction over axes puts together.

    Args:
        view: the value, each element once.
        axes: non-negative axes.
    """

    def __init__(self, view: View, axes: tuple[int, ...]) -> None:
        self.view, self.axes = view, tuple(map(int, axes))
        self.count = math.prod(view.shape[axis] for axis in self.axes)

    @cached_property
    def first(self) -> np.ndarray:
        """The first element of each group, by which groups are known; of the reduced shape."""
        return self.view.index.min(axis=self.axes)

    @cached_property
    def groups(self) -> np.ndarray:
        """The group of every element of the flat source."""
        index = self.view.index
        first = np.broadcast_to(index.min(axis=self.axes, keepdims=True), index.shape)
        result = np.empty(index.size, dtype=index.dtype)
        result[index.ravel()] = first.ravel()
        return result

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the reduced value."""
        return tuple(n for axis, n in enumerate(self.view.shape) if axis not in self.axes)

    def same(self, other: Reduction | None) -> bool:
        """Whether another reduction has the same groups of the same value."""
        if other is None or other is self:
            return other is self
        same = self.view.source is other.view.source
        return same and np.array_equal(self.groups, other.groups)

    def belongs(self, part: Symbolic, elements: np.ndarray) -> bool:
        """Whether a part has, beside each of some elements, the component of its group.

        Args:
            part: indexed by groups.
            elements: of the flat source, in the layout of the result.
        """
        if np.broadcast_shapes(part.shape, elements.shape) != elements.shape:
            return False
        return bool(np.all(self.groups[elements] == part.index))

    def axes_in(self, view: View) -> tuple[int, ...] | None:
        """The axes of a view along which its groups lie; None if they lie otherwise.

        Args:
            view: of the same source.
        """
        if view.sees(self.view):
            return self.axes
        if view.index.size != self.groups.size:
            return None
        groups = self.groups[view.index]
        axes = tuple(
            axis
            for axis, size in enumerate(view.shape)
            if size > 1 and bool(np.all(groups == groups.take([0], axis)))
        )
        inside = axes and math.prod(view.shape[axis] for axis in axes) == self.count
        return axes if inside else None


class Grouped(Symbolic):
    """A part with one component for each group of a reduction.

    Args:
        reduction: the groups.
        like: a part whose layout it has; by default that of the reduction.
    """

    def __init__(self, reduction: Reduction, like: Grouped | None = None) -> None:
        index = (lambda: reduction.first) if like is None else (lambda: like.index)
        shape = reduction.shape if like is None else like.shape
        super().__init__(shape, index, reduction.view.sites)
        self.reduction = reduction


def reduction_of(view: View, axes: tuple[int, ...]) -> Reduction | None:
    """The groups of a reduction over axes; None if a view shows elements several times.

    Args:
        view: what is reduced.
        axes: non-negative axes, at least one.
    """
    size = math.prod(view.shape)
    whole = size and size == math.prod(view.source.shape)
    return Reduction(view, axes) if whole and axes else None
