"""What is known of a chain of elementwise functions: the knots and the bounds of the whole."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.special import namespace

Knots = tuple[Any, ...]


@dataclass(frozen=True)
class Bounds:
    """Bounds of a function.

    Args:
        low: no value is below.
        high: no value is above.
        open_ended: whether the function never reaches a finite bound, and comes near it
            exponentially at most, so that powers of the distance have moments.
    """

    low: float = -math.inf
    high: float = math.inf
    open_ended: bool = False

    @property
    def positive(self) -> bool:
        """Whether the function, and with it its reciprocal, is positive."""
        return self.low > 0 or (self.low == 0 and self.open_ended)

    def plus(self, other: Bounds) -> Bounds:
        """Bounds of the sum of two functions.

        Args:
            other: bounds of the other one.
        """
        open_ended = self.open_ended or other.open_ended
        return Bounds(self.low + other.low, self.high + other.high, open_ended)

    def affine(self, scale: Any, shift: Any) -> Bounds:
        """Bounds of scale · f + shift.

        Args:
            scale: number or array.
            shift: likewise.
        """
        scales, shifts = extremes(scale), extremes(shift)
        if scales is None or shifts is None:
            return Bounds()
        ends = [s * end if s else 0.0 for s in scales for end in (self.low, self.high)]
        # f is zero times an infinite bound nowhere: a scale of zero leaves the shift alone
        open_ended = self.open_ended and 0 not in scales
        return Bounds(min(ends) + shifts[0], max(ends) + shifts[1], open_ended)


def extremes(part: Any) -> tuple[float, float] | None:
    """Smallest and largest entry; None for an array that is traced, and has no values yet.

    Args:
        part: number or array.
    """
    if isinstance(part, int | float):
        return float(part), float(part)
    xp = namespace(part)
    try:
        return float(xp.min(part)), float(xp.max(part))
    except (RuntimeError, TypeError):  # of torch and of JAX
        return None


def bounds_of(function: Any) -> Bounds:
    """Bounds that a function declares, or that follow from those of its parts.

    Args:
        function: any elementwise function.
    """
    extent = getattr(function, "extent", None)
    if extent is not None:
        return extent
    low, high = function.bounds
    return Bounds(low, high, function.open_ended)


def constants_of(function: Any) -> frozenset[float] | None:
    """Numbers by which a function multiplies and shifts; None if some are arrays.

    Args:
        function: any elementwise function.
    """
    return getattr(function, "constants", frozenset())


def chain_bounds(outer: Any, inner: Any) -> Bounds:
    """Bounds of outer(f(x)).

    Args:
        outer: an activation.
        inner: f.
    """
    known, within = bounds_of(outer), bounds_of(inner)
    # behind e^{x²}, say, the outer function comes near its bound faster than exponentially
    finite = math.isfinite(within.low) and math.isfinite(within.high)
    slow = finite or not inner.fast
    return Bounds(known.low, known.high, known.open_ended and slow)


def merged(*knots: Knots) -> Knots:
    """Knots of two functions; equal numbers once.

    Args:
        knots: of each function.
    """
    found: dict[Any, Any] = {}
    for knot in (knot for part in knots for knot in part):
        place, width = knot if isinstance(knot, tuple) else (knot, 1.0)
        plain = isinstance(place, int | float) and isinstance(width, int | float)
        found.setdefault((place, width) if plain else id(knot), knot)
    return tuple(found.values())


def numbers(*parts: Any) -> frozenset[float] | None:
    """Numbers and sets of numbers together; None if one of them is None, or no number.

    Args:
        parts: numbers, sets of numbers, None, or arrays.
    """
    found: set[float] = set()
    for part in parts:
        if isinstance(part, frozenset):
            found |= part
        elif isinstance(part, int | float):
            found.add(float(part))
        else:
            return None
    return frozenset(found)
