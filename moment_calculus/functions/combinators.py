"""Functions made of functions: scaled and shifted, composed, or combined elementwise.

Each is integrated as one function of one variable. In programs that are traced once, its
values are compared with the activations of the table, whose closed forms replace it where
they agree.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from moment_calculus.functions.base import Activation, Rescaled
from moment_calculus.functions.families.elementary import Exp
from moment_calculus.functions.integrated import Integrated, agrees_in_the_tails
from moment_calculus.functions.recognition import (
    NO_RECOGNITION,
    Preimages,
    PreimagesFromParts,
    RecognitionPolicy,
    preimages_of_levels,
)
from moment_calculus.numerics.arrays import Array, namespace, stop_gradient
from moment_calculus.numerics.private_apis import is_traced

# ----------------------------------------------------------------------------------------
# Bounds, knots and constants


Knots = tuple[Any, ...]
Range = tuple[float, float]  # the smallest and the largest entry
POSITIVE = sys.float_info.min, sys.float_info.max


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

    def affine(self, scale: Any, shift: Any, *, traced_are_positive: bool = False) -> Bounds:
        """Return the bounds of scale · f + shift, for numbers or arrays."""
        assumed = POSITIVE, (0.0, POSITIVE[1])
        scales, shifts = (
            value_range(part) or (range_ if traced_are_positive else None)
            for part, range_ in zip((scale, shift), assumed, strict=True)
        )
        if scales is None or shifts is None:
            return Bounds()
        ends = [s * end if s else 0.0 for s in scales for end in (self.low, self.high)]
        # f is finite: a scale of zero leaves the shift alone, even if a bound is infinite
        open_ended = self.open_ended and 0 not in scales
        return Bounds(min(ends) + shifts[0], max(ends) + shifts[1], open_ended)


def value_range(constant: Any) -> Range | None:
    """Return the smallest and the largest entry; None of a traced array."""
    if isinstance(constant, int | float):
        return float(constant), float(constant)
    xp = namespace(constant)
    constant = stop_gradient(constant)  # torch warns of numbers that have one
    if is_traced(constant):
        return None
    try:
        return float(xp.min(constant)), float(xp.max(constant))
    except RuntimeError:  # torch: a traced array has no values
        return None


def bounds_of(function: Any) -> Bounds:
    """Return the bounds that a function declares, or that follow from its parts."""
    extent = getattr(function, "extent", None)
    if extent is not None:
        return extent
    low, high = function.bounds
    return Bounds(low, high, function.open_ended)


def constants_of(function: Any) -> frozenset[float] | None:
    """Return the numbers in a function's parameters; None if some are arrays."""
    return getattr(function, "constants", frozenset())


def chain_bounds(outer: Any, inner: Any) -> Bounds:
    """Return the bounds of outer(f(x)) for an activation ``outer`` and any function f."""
    outer_bounds, inner_bounds = bounds_of(outer), bounds_of(inner)
    # behind e^{x²}, say, the outer function approaches its bound faster than
    # exponentially
    finite = math.isfinite(inner_bounds.low) and math.isfinite(inner_bounds.high)
    is_power = getattr(outer, "exponent", None) is not None
    slow = finite or not inner.superlinear or (is_power and _is_exponential(inner))
    low = outer_bounds.low
    if getattr(outer, "clips", False):  # a clip from above keeps what is positive positive
        low = max(low, min(inner_bounds.low, outer_bounds.high))
    return Bounds(low, outer_bounds.high, outer_bounds.open_ended and slow)


def _is_exponential(function: Any) -> bool:
    """Whether a function is a e^{bx} + c, whose powers are exponential at most."""
    while isinstance(function, Scaled | Rescaled):
        function = function.inner if isinstance(function, Scaled) else function.activation
    return type(function) is Exp


def merge_knots(*knots: Knots) -> Knots:
    """Return the knots of several functions, equal numbers once."""
    union: dict[Any, Any] = {}
    for knot in (knot for part in knots for knot in part):
        location, width = knot if isinstance(knot, tuple) else (knot, 1.0)
        plain = isinstance(location, int | float) and isinstance(width, int | float)
        union.setdefault((location, width) if plain else id(knot), knot)
    return tuple(union.values())


def merge_constants(*parts: Any) -> frozenset[float] | None:
    """Return the union of numbers and sets of numbers; None beside None or an array."""
    constants: set[float] = set()
    for part in parts:
        if isinstance(part, frozenset):
            constants |= part
        elif isinstance(part, int | float):
            constants.add(float(part))
        else:
            return None
    return frozenset(constants)


# ----------------------------------------------------------------------------------------
# The functions


Move = Callable[[Array], Array]
_evaluation_cache: ContextVar[dict | None] = ContextVar(
    "values of the functions of a chain", default=None
)
_moved_parts: ContextVar[dict | None] = ContextVar("moved parts of a chain", default=None)


def with_arrays_moved(function: Any, move: Move, shape: tuple[int, ...]) -> Any:
    """Rearrange the arrays within a function, broadcast to ``shape``, by ``move``.

    What a chain uses twice is rearranged once: its copies would double with every step.
    """
    if not has_arrays(function):
        return function
    cache = _moved_parts.get()
    if cache is None:
        token = _moved_parts.set({})
        try:
            return function.with_arrays_moved(move, shape)
        finally:
            _moved_parts.reset(token)
    key = id(function), id(move), shape
    if key not in cache:  # the entry keeps both alive: their ids are not used again
        cache[key] = function, move, function.with_arrays_moved(move, shape)
    return cache[key][2]


def has_arrays(function: Any) -> bool:
    """Return whether a function may differ from element to element."""
    return isinstance(function, Scaled | Composed | Fused)


@dataclass(frozen=True, eq=False)
class Scaled(PreimagesFromParts, Activation):
    """The function scale · f(x) + shift, for numbers or arrays."""

    inner: Any  # f
    scale: Any  # number or array, as is the shift
    shift: Any
    policy: RecognitionPolicy  # whether f may be evaluated at fixed points
    traced_are_positive: bool = False  # whether arrays without values are taken as positive
    has_log_zeros: bool = False  # whether the shift is −∞ somewhere
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
    def superlinear(self) -> bool:  # type: ignore[override]
        """Return whether f grows faster than linearly."""
        return self.inner.superlinear

    @property
    def constants(self) -> frozenset[float] | None:
        """Return the numbers of f and its own; None if some are arrays."""
        return merge_constants(constants_of(self.inner), self.scale, self.shift)

    @property
    def extent(self) -> Bounds:
        """Return the bounds of f, scaled and shifted."""
        assumed = self.traced_are_positive
        return bounds_of(self.inner).affine(self.scale, self.shift, traced_are_positive=assumed)

    def assuming_positive(self) -> Scaled:
        """Return the function where traced arrays are not negative, NaN where they are."""
        inner = self.inner.assuming_positive() if isinstance(self.inner, Scaled) else self.inner
        scale, shift = not_negative(self.scale), not_negative(self.shift)
        return Scaled(inner, scale, shift, self.policy, True)

    def preimages(self, level: Any) -> Preimages:
        """Return where f takes (level − shift) / scale, and |dx/d level| there."""
        if isinstance(self.scale, int | float) and not self.scale:
            return ()  # a constant crosses no level
        preimages = self.policy.preimages(self.inner, (level - self.shift) / self.scale)
        return tuple((location, stretch / abs(self.scale)) for location, stretch in preimages)

    def with_arrays_moved(self, move: Move, shape: tuple[int, ...]) -> Scaled:
        """Return the function with its arrays rearranged."""
        scale, shift = (_constant_moved(part, move, shape) for part in (self.scale, self.shift))
        inner = with_arrays_moved(self.inner, move, shape)
        return replace(self, inner=inner, scale=scale, shift=shift)


def not_negative(constant: Any) -> Any:
    """Return a traced array with NaN in the place of negative entries; other parts as they are."""
    if value_range(constant) is not None:
        return constant
    return namespace(constant).where(constant >= 0, constant, math.nan)


def _constant_moved(constant: Any, move: Move, shape: tuple[int, ...]) -> Any:
    if not len(getattr(constant, "shape", ())):
        return constant
    return move(namespace(constant).broadcast_to(constant, shape))


@dataclass(frozen=True, eq=False)
class Composed(PreimagesFromParts, Integrated):
    """The function outer(f(x)), integrated as one function."""

    outer: Any = None  # an activation
    inner: Any = None  # f
    policy: RecognitionPolicy = NO_RECOGNITION  # whether f may be evaluated at fixed points

    @classmethod
    def of(cls, outer: Any, inner: Any, policy: RecognitionPolicy) -> Composed:
        """Return the composition of an activation and any elementwise function."""
        return cls(
            lambda points: outer(inner(points)),
            lambda: merge_knots(inner.knots, preimages_of_levels(_levels(outer), inner, policy)),
            merge_constants(constants_of(inner), constants_of(outer)),
            outer,
            inner,
            policy,
        )

    def __reduce__(self) -> tuple:
        """Return how to compose the functions anew: pickle does not take closures."""
        return Composed.of, (self.outer, self.inner, self.policy)

    @property
    def extent(self) -> Bounds:
        """Return the bounds of the composition."""
        return chain_bounds(self.outer, self.inner)

    @property
    def superlinear(self) -> bool:  # type: ignore[override]
        """Return whether it is unbounded and one of the functions grows faster than linearly."""
        low, high = self.outer.bounds
        bounded = math.isfinite(low) and math.isfinite(high)
        return not bounded and (self.outer.superlinear or self.inner.superlinear)

    def preimages(self, level: Any) -> Preimages:
        """Return where the composition takes a value, as far as both functions know."""
        return preimages_of_levels(self.outer.preimages(level), self.inner, self.policy)

    def with_arrays_moved(self, move: Move, shape: tuple[int, ...]) -> Composed:
        """Return the composition with the arrays of f rearranged."""
        return Composed.of(self.outer, with_arrays_moved(self.inner, move, shape), self.policy)


def _levels(outer: Any) -> tuple[tuple[Any, Any], ...]:
    """Return the knots of a function as pairs of a place and a width."""
    return tuple(knot if isinstance(knot, tuple) else (knot, 1.0) for knot in outer.knots)


class Identity:
    """The identity x, as a part of a combination."""

    knots = ()

    def __call__(self, points: Array) -> Array:
        """Evaluate the plain function."""
        return points


@dataclass(frozen=True, eq=False)
class Fused(Integrated):
    """The function combine(f(x), g(x), …), integrated as one function."""

    combine: Callable[..., Array] = None  # type: ignore[assignment]  # elementwise
    parts: tuple[Any, ...] = ()  # f, g, …, or :class:`Identity`
    compute_bounds: Callable[[], Bounds] = field(
        default=Bounds
    )  # computes the bounds that are known
    policy: RecognitionPolicy = NO_RECOGNITION  # whether the whole may be evaluated at fixed points

    @classmethod
    def of(
        cls,
        combine: Callable[..., Array],
        parts: tuple[Any, ...],
        compute_bounds: Callable[[], Bounds],
        policy: RecognitionPolicy,
    ) -> Fused:
        """Return the combination of functions of one variable."""
        return cls(
            _Memoised(lambda points: combine(*(part(points) for part in parts))),
            lambda: merge_knots(*(part.knots for part in parts)),
            merge_constants(*(constants_of(part) for part in parts)),
            combine,
            parts,
            compute_bounds,
            policy,
        )

    def __reduce__(self) -> tuple:
        """Return how to combine the functions anew, with the bounds computed."""
        known = partial(Bounds, **vars(self.compute_bounds()))
        return Fused.of, (self.combine, self.parts, known, self.policy)

    @cached_property
    def recognised_function(self) -> Any:
        """Return the activation of the table that it equals, or itself."""
        return self.policy.recognised_function(self)

    @property
    def extent(self) -> Bounds:
        """Return the computed bounds; else those of the activation that it equals."""
        bounds, activation = self.compute_bounds(), self.recognised_function
        if bounds.positive or activation is self or not agrees_in_the_tails(self, activation):
            return bounds
        return bounds_of(activation)

    def with_arrays_moved(self, move: Move, shape: tuple[int, ...]) -> Fused:
        """Return the combination with the arrays of its parts rearranged."""
        parts = tuple(with_arrays_moved(part, move, shape) for part in self.parts)
        return Fused.of(self.combine, parts, self.compute_bounds, self.policy)


class _Memoised:
    """A function that a chain evaluates once at the same points, however often it uses it.

    Without it the cost of a chain would double wherever a value is used twice.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self.function = function

    def __call__(self, points: Array) -> Array:
        cache = _evaluation_cache.get()
        if cache is None:
            token = _evaluation_cache.set({})
            try:
                return self.function(points)
            finally:
                _evaluation_cache.reset(token)
        key = id(self), id(points)
        if key not in cache:  # the entry keeps the points alive: their id is not used again
            cache[key] = points, self.function(points)
        return cache[key][1]
