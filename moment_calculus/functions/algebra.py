"""Functions made of functions: scaled and shifted, composed, or combined elementwise.

Each is integrated as one function of one variable. In programs that are traced once, its values
are compared with the activations of the table, whose closed forms replace it where they agree.
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
    """Rearrange the arrays within a function, broadcast to ``shape``, by ``move``."""
    made = isinstance(function, Scaled | Composed | Fused)
    return function.moved(move, shape) if made else function


@dataclass(frozen=True, eq=False)
class Scaled(SeesThrough, Activation):
    """The function scale · f(x) + shift, for numbers or arrays."""

    inner: Any  # f
    scale: Any  # number or array, as is the shift
    shift: Any
    look: Look  # whether f may be evaluated at fixed points
    name = "scaled"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.inner(x) * self.scale + self.shift

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the mean and the variance of f(x), scaled and shifted."""
        centre, spread = self.inner.moments(mean, variance)
        return centre * self.scale + self.shift, spread * (self.scale * self.scale)

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean of f(x), scaled and shifted."""
        return self.inner.expectation(mean, variance) * self.scale + self.shift

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients of f(x), scaled."""
        return [term * self.scale for term in self.inner.hermite(mean, variance, order)]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative of f(x), scaled."""
        return self.inner.gain(mean, variance) * self.scale

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the knots of f."""
        return self.inner.knots

    @property
    def fast(self) -> bool:  # type: ignore[override]
        """Return whether f grows faster than linearly."""
        return self.inner.fast

    @property
    def constants(self) -> frozenset[float] | None:
        """Return the numbers of f and its own; None if some are arrays."""
        return numbers(constants_of(self.inner), self.scale, self.shift)

    @property
    def extent(self) -> Bounds:
        """Return the bounds of f, scaled and shifted."""
        return bounds_of(self.inner).affine(self.scale, self.shift)

    def preimages(self, level: Any) -> Preimages:
        """Return where f takes the value (level − shift) / scale, and |dx/d level| there."""
        found = self.look.preimages(self.inner, (level - self.shift) / self.scale)
        return tuple((place, stretch / abs(self.scale)) for place, stretch in found)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Scaled:
        """Return the function with its arrays rearranged."""
        scale, shift = (_moved_part(part, move, shape) for part in (self.scale, self.shift))
        return Scaled(moved(self.inner, move, shape), scale, shift, self.look)


def _moved_part(part: Any, move: Move, shape: tuple[int, ...]) -> Any:
    if not len(getattr(part, "shape", ())):
        return part
    return move(namespace(part).broadcast_to(part, shape))


@dataclass(frozen=True, eq=False)
class Composed(SeesThrough, Integrated):
    """The function outer(f(x)), integrated as one function."""

    outer: Any = None  # an activation
    inner: Any = None  # f
    look: Look = NOT  # whether f may be evaluated at fixed points

    @classmethod
    def of(cls, outer: Any, inner: Any, look: Look) -> Composed:
        """Return the composition of an activation and any elementwise function."""
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
        """Return the bounds of the composition."""
        return chain_bounds(self.outer, self.inner)

    @property
    def fast(self) -> bool:  # type: ignore[override]
        """Return whether it is unbounded and one of the functions grows faster than linearly."""
        low, high = self.outer.bounds
        bounded = math.isfinite(low) and math.isfinite(high)
        return not bounded and (self.outer.fast or self.inner.fast)

    def preimages(self, level: Any) -> Preimages:
        """Return where the composition takes a value, as far as both functions know."""
        return through(self.outer.preimages(level), self.inner, self.look)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Composed:
        """Return the composition with the arrays of f rearranged."""
        return Composed.of(self.outer, moved(self.inner, move, shape), self.look)


def _levels(outer: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the knots of a function as pairs of a place and a width."""
    return tuple(knot if isinstance(knot, tuple) else (knot, 1.0) for knot in outer.knots)


class Itself:
    """The identity x, as a part of a combination."""

    knots = ()

    def __call__(self, points: Array) -> Array:
        """Evaluate the plain function."""
        return points


@dataclass(frozen=True, eq=False)
class Fused(Integrated):
    """The function combine(f(x), g(x), …), integrated as one function."""

    combine: Callable[..., Array] = None  # type: ignore[assignment]  # elementwise
    parts: tuple[Any, ...] = ()  # f, g, …, or :class:`Itself`
    told: Callable[[], Bounds] = field(default=Bounds)  # computes the bounds that are known
    look: Look = NOT  # whether the whole may be evaluated at fixed points

    @classmethod
    def of(
        cls,
        combine: Callable[..., Array],
        parts: tuple[Any, ...],
        told: Callable[[], Bounds],
        look: Look,
    ) -> Fused:
        """Return the combination of functions of one variable."""
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
        """Return the activation of the table that it equals, or itself."""
        return self.look.settled(self)

    @property
    def extent(self) -> Bounds:
        """Return the bounds from ``told``; else those of the activation that it equals."""
        known, found = self.told(), self.settled
        if known.positive or found is self or not agrees_in_the_tails(self, found):
            return known
        return bounds_of(found)

    def moved(self, move: Move, shape: tuple[int, ...]) -> Fused:
        """Return the combination with the arrays of its parts rearranged."""
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
        if key not in known:  # the entry keeps the points alive: their id is not used again
            known[key] = points, self.function(points)
        return known[key][1]
