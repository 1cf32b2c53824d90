"""Values that remember which part of a composite function they are, and rules for them.

Frameworks write softmax, logsumexp and normalisations in sums, differences, exponentials
and quotients, which depend on each other. A part keeps the value and the elements that it
was formed from, numbered as in the flat source in any layout. Rules turn parts into larger
parts, and the last operation recognises the function. A part that is used in another way
has its own moments.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np

from moment_calculus.operations.normalised.softmax import LogSoftmax, LogSumExp, Softmax
from moment_calculus.values import Deferred, Gaussian

Move = Callable[[Any], Any]


class Symbolic:
    """Base class of the parts of composite functions."""

    def __init__(
        self, shape: tuple[int, ...], index: Callable[[], np.ndarray], sites: frozenset[str]
    ) -> None:
        self.shape, self.sites = tuple(shape), sites
        self._index = index  # computes the property ``index``
        self._fallback: Callable[[], Any] | None = None
        self._value: Any = None

    @cached_property
    def index(self) -> np.ndarray:
        """The element or group of the flat source that each component belongs to."""
        return self._index()

    def set_fallback(self, plain: Callable[[], Any]) -> Self:
        """Set how the value is computed if it is used on its own, unless that is set already."""
        self._fallback = self._fallback or plain
        return self

    def wrap_fallback(self, compute: Callable[[Callable[[], Any]], Any]) -> Self:
        """Wrap the computation of the value on its own by ``compute``, which must call it."""
        plain = self._fallback
        if plain is not None:
            self._fallback = lambda: compute(plain)
        return self

    def value(self) -> Any:
        """Return the value on its own, computed once."""
        if self._value is None:
            assert self._fallback is not None, "set_fallback() was not called"
            self._value = self._fallback()
        return self._value

    def moved(self, move: Move, plain: Move) -> Self:
        """Return the part after a shape operation: ``move`` for arrays, ``plain`` for values."""
        result = copy.copy(self)
        result.__dict__.pop("index", None)
        result.shape = move(np.broadcast_to(np.int8(0), self.shape)).shape
        result._index = lambda: move(self.index)
        result._value = result._fallback = None
        return result.set_fallback(lambda: plain(self.value()))


class ElementPart(Symbolic):
    """A part with one component for each element of a view."""

    def __init__(self, view: View) -> None:
        super().__init__(view.shape, lambda: view.index, view.sites)
        self.view = view

    def moved(self, move: Move, plain: Move) -> Self:
        """Return the part after a shape operation on its view."""
        result = super().moved(move, plain)
        result.view = self.view.moved(move, plain)
        return result


class View(Symbolic):
    """A value in any layout of the elements of its source."""

    def __init__(self, source: Any) -> None:
        shape, size = tuple(source.shape), math.prod(source.shape)
        super().__init__(shape, lambda: np.arange(size).reshape(shape), source.sites)
        self.source = source
        self._value = source

    @property
    def view(self) -> View:
        """The view itself, as other parts have a view."""
        return self

    def shows_same(self, other: View) -> bool:
        """Whether another view shows the same elements at the same places."""
        same = self.source is other.source and self.shape == other.shape
        return same and np.array_equal(self.index, other.index)


class Reduction:
    """The groups of elements of a view that a reduction over axes combines."""

    def __init__(self, view: View, axes: tuple[int, ...]) -> None:
        self.view, self.axes = view, tuple(map(int, axes))
        self.count = math.prod(view.shape[axis] for axis in self.axes)

    @cached_property
    def first(self) -> np.ndarray:
        """The first element of each group, which identifies the group; of the reduced shape."""
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

    def is_aligned(self, part: Symbolic, elements: np.ndarray) -> bool:
        """Whether each element meets the component of its own group when a part is broadcast."""
        if np.broadcast_shapes(part.shape, elements.shape) != elements.shape:
            return False
        return bool(np.all(self.groups[elements] == part.index))

    def axes_in(self, view: View) -> tuple[int, ...] | None:
        """Return the axes of a view of the same source along which the groups lie, or None."""
        if view.shows_same(self.view):
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


class GroupPart(Symbolic):
    """A part with one component for each group of a reduction."""

    def __init__(self, reduction: Reduction, like: GroupPart | None = None) -> None:
        index = (lambda: reduction.first) if like is None else (lambda: like.index)
        shape = reduction.shape if like is None else like.shape
        super().__init__(shape, index, reduction.view.sites)  # in the layout of ``like``, if given
        self.reduction = reduction


def reduction_of(view: View, axes: tuple[int, ...]) -> Reduction | None:
    """Return the groups of a reduction; None unless the view has each element once."""
    size = math.prod(view.shape)
    whole = size and size == math.prod(view.source.shape)
    return Reduction(view, axes) if whole and axes else None


class Certain:
    """The kind of operands that are not random, in the table of rules."""


RULES: dict[tuple, Callable] = {}
FALLBACK_RULES: list[Callable] = []
VECTOR_FUNCTIONS = (LogSoftmax, LogSumExp, Softmax)


def recognition_rule(
    operation: str, *kinds: type, commutes: bool = False
) -> Callable[[Callable], Callable]:
    """Return a decorator that registers the result of an operation on parts of these kinds.

    The function takes the operands, and options by keyword. It returns another part, a
    value where the composite is complete, or None. Values that are no other part are of
    kind ``View``.
    """

    def register(function: Callable) -> Callable:
        RULES[(operation, *kinds)] = function
        if commutes:
            RULES[(operation, *kinds[::-1])] = lambda left, right: function(right, left)
        return function

    return register


def fallback_rule(function: Callable) -> Callable:
    """Register a function that is called if no rule recognises an operation on parts."""
    FALLBACK_RULES.append(function)
    return function


def apply_rule(operation: str, *operands: Any, **options: Any) -> Any:
    """Return the part or value that an operation makes of its operands; None if not recognised.

    The moments of a part on its own are still to be set by ``set_fallback``.
    """
    kinds = tuple(map(_kind, operands))
    function = RULES.get((operation, *kinds))
    parts = [
        View(operand) if kind is View and not isinstance(operand, View) else operand
        for operand, kind in zip(operands, kinds, strict=True)
    ]
    result = function and function(*parts, **options)
    if result is not None or not any(isinstance(operand, Symbolic) for operand in operands):
        return result
    attempts = (attempt(operation, *operands, **options) for attempt in FALLBACK_RULES)
    return next((result for result in attempts if result is not None), None)


def resolved(operand: Any) -> Any:
    """Return an operand on its own, for rules that know nothing of parts."""
    return operand.value() if isinstance(operand, Symbolic) else operand


def _kind(operand: Any) -> type:
    if isinstance(operand, Symbolic):
        return type(operand)
    if isinstance(operand, (Gaussian, Deferred, *VECTOR_FUNCTIONS)):
        return View
    return type(operand) if hasattr(operand, "sites") else Certain
