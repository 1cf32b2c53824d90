"""Bounds, knots and constants of chains of elementwise functions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.special import namespace

Knots = tuple[Any, ...]


@dataclass(frozen=True)
class Bounds:
    """Lower and upper bound of a function."""

    low: float = -math.inf
    high: float = math.inf
    # Whether f never reaches a finite bound, and approaches it at most exponentially:
    # powers of the distance to the bound then have moments.
    open_ended: bool = False

    @property
    def positive(self) -> bool:
        """Return whether the function is positive, and so is its reciprocal."""
        return self.low > 0 or (self.low == 0 and self.open_ended)

    def plus(self, other: Bounds) -> Bounds:
        """Return the bounds of the sum of two functions."""
        open_ended = self.open_ended or other.open_ended
        return Bounds(self.low + other.low, self.high + other.high, open_ended)

    def affine(self, scale: Any, shift: Any) -> Bounds:
        """Return the bounds of scale · f + shift, for numbers or arrays."""
        scales, shifts = value_range(scale), value_range(shift)
        if scales is None or shifts is None:
            return Bounds()
        ends = [s * end if s else 0.0 for s in scales for end in (self.low, self.high)]
        # f is finite: a scale of zero leaves the shift alone, even if a bound is infinite
        open_ended = self.open_ended and 0 not in scales
        return Bounds(min(ends) + shifts[0], max(ends) + shifts[1], open_ended)


def value_range(part: Any) -> tuple[float, float] | None:
    """Return the smallest and the largest entry of a number or array; None if it is traced."""
    if isinstance(part, int | float):
        return float(part), float(part)
    xp = namespace(part)
    try:
        return float(xp.min(part)), float(xp.max(part))
    except (RuntimeError, TypeError):  # torch and JAX: a traced array has no values
        return None


def bounds_of(function: Any) -> Bounds:
    """Return the bounds that a function declares, or that follow from its parts."""
    extent = getattr(function, "extent", None)
    if extent is not None:
        return extent
    low, high = function.bounds
    return Bounds(low, high, function.open_ended)


def constants_of(function: Any) -> frozenset[float] | None:
    """Return the numbers by which a function multiplies and shifts; None if some are arrays."""
    return getattr(function, "constants", frozenset())


def chain_bounds(outer: Any, inner: Any) -> Bounds:
    """Return the bounds of outer(f(x)) for an activation ``outer`` and any function f."""
    outer_bounds, inner_bounds = bounds_of(outer), bounds_of(inner)
    # behind e^{x²}, say, the outer function approaches its bound faster than
    # exponentially
    finite = math.isfinite(inner_bounds.low) and math.isfinite(inner_bounds.high)
    slow = finite or not inner.superlinear
    return Bounds(outer_bounds.low, outer_bounds.high, outer_bounds.open_ended and slow)


def merge_knots(*knots: Knots) -> Knots:
    """Return the knots of several functions, equal numbers once."""
    union: dict[Any, Any] = {}
    for knot in (knot for part in knots for knot in part):
        place, width = knot if isinstance(knot, tuple) else (knot, 1.0)
        plain = isinstance(place, int | float) and isinstance(width, int | float)
        union.setdefault((place, width) if plain else id(knot), knot)
    return tuple(union.values())


def merge_constants(*parts: Any) -> frozenset[float] | None:
    """Return the union of numbers and sets of numbers; None if a part is None or an array."""
    constants: set[float] = set()
    for part in parts:
        if isinstance(part, frozenset):
            constants |= part
        elif isinstance(part, int | float):
            constants.add(float(part))
        else:
            return None
    return frozenset(constants)
