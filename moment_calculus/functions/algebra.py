"""Functions made of functions: scaled and shifted, chained, or combined; one function each.

Each is a function of one variable like any of the table, integrated at once. Where programs are
traced once, what a combination computes is looked at, and may be found in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from moment_calculus.functions.base import Activation
from moment_calculus.functions.chains import (
    Bounds,
    bounds_of,
    chain_bounds,
    constants_of,
    merged,
    numbers,
)
from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.look import NOT, Look, Preimages, SeesThrough, through
from moment_calculus.functions.recognition.probing import agrees_in_the_tails
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace

Move = Callable[[Array], Array]
_known: ContextVar[dict | None] = ContextVar("values of the functions of a chain", default=None)


def moved(function: Any, move: Move, shape: tuple[int, ...]) -> Any:
    """A function of each element, after the elements were put elsewhere.

    Args:
        function: any elementwise function; its arrays move along.
        move: puts the elements of an array elsewhere.
        shape: of that array.
    """
    made = isinstance(function, Scaled | Composed | Fused)
    return function.moved(move, shape) if made else function


@dataclass(frozen=True, eq=False)
class Scaled(SeesThrough, Activation):
    """scale · f(x) + shift: in other units, with arrays as well as numbers.

    Args:
        inner: f.
        scale: array or number.
        shift: likewise.
        look: whether f may be looked at.
    """

    inner: Any
    scale: Any
    shift: Any
    look: Look
    name = "scaled"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.inner(x) * self.scale + self.shift

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Those of f(x), scaled and shifted."""
        centre, spread = self.inner.moments(mean, variance)
        return centre * self.scale + self.shift, spread * (self.scale * self.scale)

    def expectation(self, mean: Array, variance: Array) -> Array:
        """That of f(x), scaled and shifted."""
        return self.inner.expectation(mean, variance) * self.scale + self.shift

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Those of f(x), scaled."""
        return [term * self.scale for term in self.inner.hermite(mean, variance, order)]

    def gain(self, mean: Array, variance: Array) -> Array:
        """That of f(x), scaled."""
        return self.inner.gain(mean, variance) * self.scale

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Those of f."""
        return self.inner.knots

    @property
    def fast(self) -> bool:  # type: ignore[override]
        """As of f."""
        return self.inner.fast

    @property
    def constants(self) -> frozenset[float] | None:
        """Those of f, and its own."""
        return numbers(constants_of(self.inner), self.scale, self.shift)

    @property
    def extent(self) -> Bounds:
        """Bounds of f, mapped."""
        return bounds_of(self.inner).affine(self.scale, self.shift)

    def preimages(self, level: Any) -> Preimages:
        """Those of f."""
        found = self.look.preimages(self.inner, (level - self.shift) / self.scale)
        return tuple((place, stretch / abs(self.scale)) for place, stretch in found)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Scaled:
        """With its arrays moved."""
        scale, shift = (_moved_part(part, move, shape) for part in (self.scale, self.shift))
        return Scaled(moved(self.inner, move, shape), scale, shift, self.look)


def _moved_part(part: Any, move: Move, shape: tuple[int, ...]) -> Any:
    if not len(getattr(part, "shape", ())):
        return part
    return move(namespace(part).broadcast_to(part, shape))


@dataclass(frozen=True, eq=False)
class Composed(SeesThrough, Integrated):
    """outer(f(x)), integrated at once.

    Args:
        outer: an activation.
        inner: f.
        look: whether f may be looked at.
    """

    outer: Any = None
    inner: Any = None
    look: Look = NOT

    @classmethod
    def of(cls, outer: Any, inner: Any, look: Look) -> Composed:
        """The chain of two functions.

        Args:
            outer: an activation.
            inner: any elementwise function.
            look: whether it may be looked at.
        """
        return cls(
            lambda points: outer(inner(points)),
            lambda: merged(inner.knots, through(_levels(outer), inner, look)),
            numbers(constants_of(inner), constants_of(outer)),
            outer,
            inner,
            look,
        )

    @property
    def extent(self) -> Bounds:
        """Those of the outer function."""
        return chain_bounds(self.outer, self.inner)

    @property
    def fast(self) -> bool:  # type: ignore[override]
        """Not where it is bounded, or neither function is."""
        low, high = self.outer.bounds
        bounded = math.isfinite(low) and math.isfinite(high)
        return not bounded and (self.outer.fast or self.inner.fast)

    def preimages(self, level: Any) -> Preimages:
        """Through both functions."""
        return through(self.outer.preimages(level), self.inner, self.look)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Composed:
        """With the arrays of f moved."""
        return Composed.of(self.outer, moved(self.inner, move, shape), self.look)


def _levels(outer: Any) -> tuple[tuple[Any, Any], ...]:
    """The knots of a function as values of its argument, each with a width."""
    return tuple(knot if isinstance(knot, tuple) else (knot, 1.0) for knot in outer.knots)


class Itself:
    """x, as a part of a combination."""

    knots = ()

    def __call__(self, points: Array) -> Array:
        """Evaluate the plain function."""
        return points


@dataclass(frozen=True, eq=False)
class Fused(Integrated):
    """combine(f(x), g(x), …), integrated at once, like a chain.

    Args:
        combine: elementwise function of as many arrays.
        parts: f, g, …, or :class:`Itself`.
        told: finds the bounds of the result, where they are known.
        look: whether the whole may be looked at.
    """

    combine: Callable[..., Array] = None  # type: ignore[assignment]
    parts: tuple[Any, ...] = ()
    told: Callable[[], Bounds] = field(default=Bounds)
    look: Look = NOT

    @classmethod
    def of(
        cls,
        combine: Callable[..., Array],
        parts: tuple[Any, ...],
        told: Callable[[], Bounds],
        look: Look,
    ) -> Fused:
        """The combination of functions; see the class.

        Args:
            combine: as of the class.
            parts: likewise.
            told: likewise.
            look: likewise.
        """
        return cls(
            _Shared(lambda points: combine(*(part(points) for part in parts))),
            lambda: merged(*(part.knots for part in parts)),
            numbers(*(constants_of(part) for part in parts)),
            combine,
            parts,
            told,
            look,
        )

    @cached_property
    def settled(self) -> Any:
        """What it is recognised as."""
        return self.look.settled(self)

    @property
    def extent(self) -> Bounds:
        """What is told; where that says nothing, that of the function it is recognised as."""
        known, found = self.told(), self.settled
        if known.positive or found is self or not agrees_in_the_tails(self, found):
            return known
        return bounds_of(found)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Fused:
        """With the arrays of its parts moved."""
        parts = tuple(moved(part, move, shape) for part in self.parts)
        return Fused.of(self.combine, parts, self.told, self.look)


class _Shared:
    """A function that a chain evaluates once at the same points, however often it uses it.

    Without it the cost of a chain would double wherever a value is used twice.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function = function

    def __call__(self, points: Array) -> Array:
        known = _known.get()
        if known is None:
            token = _known.set({})
            try:
                return self.function(points)
            finally:
                _known.reset(token)
        key = id(self), id(points)
        if key not in known:  # with the points, whose id it keeps
            known[key] = points, self.function(points)
        return known[key][1]
