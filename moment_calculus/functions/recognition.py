"""Recognise chains of elementwise functions as activations of the table, by their values.

gelu, softplus and clip arrive as chains of primitives. A chain whose constants are known
numbers is evaluated at fixed points, tails included, and compared with straight pieces
between its knots and with a f(bx) + d for f of the table. It is replaced if they agree to
the precision of its constants at all points.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.families.elementary import overflowing
from moment_calculus.functions.integrated import crossings, values_at
from moment_calculus.functions.table import (
    ACTIVATIONS,
    ELU,
    Activation,
    Heaviside,
    Integrated,
    LeakyReLU,
    PiecewiseLinear,
    Power,
    ReLU,
    Rescaled,
    activation,
)
from moment_calculus.numerics.arrays import is_traced_once
from moment_calculus.numerics.normal import is_single_precision

SINGLE = 4 * 2.0**-24  # constants of a float32 program are rounded
DOUBLE = 16 * 2.0**-53
ROUNDING = 64 * 2.0**-53  # error of evaluating the chain itself in double precision
LARGEST_RATES = 4

# Not compared directly: found as straight pieces, by rates and scales, or by a function
# below.
_NOT_COMPARED = (PiecewiseLinear, LeakyReLU, Heaviside, Rescaled, ELU, Power)
LARGEST_POWER = 8
_DISTANCES = np.array([71.3, 133.7, 267.1, 619.3, 1.31e3, 1.07e4, 1.03e6])
FAR = np.concatenate([-_DISTANCES, 1.01 * _DISTANCES])


@functools.cache
def probes() -> np.ndarray:
    """Return 96 points of both signs from 1e-3 to 55, at spacings that no period shares."""
    steps = np.exp(np.linspace(math.log(1e-3), math.log(50.0), 48))
    jitter = 1 + 0.1 * np.modf(np.arange(96) * math.sqrt(2))[0]
    return np.concatenate([-steps * jitter[:48], steps * jitter[48:]])


# Points from which the scale and the shift are computed: the function varies between
# them.
_FIRST, _SECOND, _THIRD = 30, 48 + 33, 35


@dataclass(frozen=True)
class _Table:
    """Activations of the table, with their values at the probes."""

    functions: tuple[Activation, ...]
    values: np.ndarray  # [functions, probes]
    sensitivities: np.ndarray  # error of each value per relative error of its constants


@functools.cache
def _table() -> _Table:
    functions = list(_without_parameters())
    functions += [Power(exponent) for exponent in range(2, LARGEST_POWER + 1)]
    x, step = probes(), 1e-6
    values = np.stack([function(x) for function in functions])
    ahead = np.stack([function(x * (1 + step)) for function in functions])
    slopes = np.abs(ahead - values) / step
    return _Table(tuple(functions), values, slopes + np.abs(values) + np.minimum(np.abs(x), 1.0))


def _without_parameters() -> Iterator[Activation]:
    """Yield the smooth activations of the table that need no parameters, users' ones too."""
    for name in ACTIVATIONS:
        with contextlib.suppress(TypeError):  # it has parameters without defaults
            function = activation(name)
            if not isinstance(function, _NOT_COMPARED):
                yield function


def recognised(function: Any, *, single: bool = False) -> Any:
    """Return the activation of the table that a chain computes, or the chain itself.

    They are compared at 110 points and, for straight pieces, at 24 in every piece.
    Functions that differ by less than 3e-7 (single precision) or 1e-14 (double) of their
    scale count as equal.
    """
    if not isinstance(function, Integrated) or function.constants is None:
        return function
    values = values_at(function, probes())
    if values is None or not np.isfinite(values).all():
        return function
    match = _smooth(function, values, single) or recognise_piecewise_linear(function)
    return function if match is None else match


def _smooth(function: Integrated, values: np.ndarray, single: bool) -> Activation | None:
    """Find a f(bx) + d that equals the chain, b = ±1 or of :func:`_rates`; else None."""
    mirrored = values_at(function, -probes())
    hits = [*_matches(values, 1.0, single), *_matches(mirrored, -1.0, single)]
    for rate in () if hits else _rates(function):
        hits += _matches(values_at(function, probes() / rate), rate, single)
    hits = [hit for hit in hits if _agrees_far_away(function, hit, single)]
    return _simplify(min(hits, key=_complexity)) if hits else None


def _rates(function: Integrated) -> Iterator[float]:
    sizes = {abs(number) for number in function.constants or () if math.isfinite(number)}
    others = sorted(sizes - {0.0, 1.0})[:LARGEST_RATES]
    both = itertools.chain.from_iterable((rate, 1 / rate) for rate in others)
    return itertools.chain.from_iterable((rate, -rate) for rate in both)


def _agrees_far_away(function: Integrated, match: Rescaled, single: bool) -> bool:
    """Return whether the match also holds at the unscaled probes, and at :data:`FAR`."""
    points = np.concatenate([probes(), FAR])
    with np.errstate(all="ignore"):
        expected = match(points)
        with overflowing():
            values = values_at(function, points)
    if values is None:
        return False
    # an overflow within the chain says nothing, and a cap of it as little
    rest = np.where(np.isfinite(values), np.abs(values - expected), 0.0)
    slack = 1024 * (SINGLE if single else DOUBLE)
    allowed = slack * (np.abs(expected) + abs(match.outer) * (1 + np.abs(points)))
    return bool((rest <= allowed).all())


def _simplify(match: Rescaled) -> Activation:
    itself = (match.inner, match.outer, match.shift) == (1, 1, 0)
    return match.activation if itself else match


def _matches(values: np.ndarray | None, rate: float, single: bool) -> Iterator[Rescaled]:
    if values is None or not np.isfinite(values).all():
        return
    table = _table()
    change = table.values[:, _SECOND] - table.values[:, _FIRST]
    scales = (values[_SECOND] - values[_FIRST]) / change
    shifts = values[_FIRST] - scales * table.values[:, _FIRST]
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.abs(values - scales[:, None] * table.values - shifts[:, None])
        near = (rest <= 64 * _allowed(table.sensitivities, scales, shifts, True)).all(axis=-1)
    for row in np.nonzero(near)[0]:
        for scale, shift in _candidates(scales[row], shifts[row]):
            if _equal(values, table.values[row], table.sensitivities[row], scale, shift, single):
                yield Rescaled(table.functions[row], rate, scale, shift)
                break
    yield from _elu(values, rate, single)


def _elu(values: np.ndarray, rate: float, single: bool) -> Iterator[Rescaled]:
    """Yield the match a x above zero, A (eˣ − 1) below, plus a shift, if there is one."""
    x = probes()
    left, right = np.expm1(np.minimum(x, 0.0)), np.maximum(x, 0.0)
    shift = values[0] - (values[_THIRD] - values[0]) / (left[_THIRD] - left[0]) * left[0]
    shift = _round(shift)
    below, above = (values[_THIRD] - shift) / left[_THIRD], (values[-1] - shift) / right[-1]
    if not min(abs(above), abs(below)) > 1e-6 * max(abs(above), abs(below)):
        return
    scale, share = _round(above), _round(below / above)
    function = ELU(share)
    plain = function(x)
    size = np.abs(plain) + np.minimum(np.abs(x), 1.0) + np.abs(x * np.exp(np.minimum(x, 0.0)))
    if _equal(values, plain, size, scale, shift, single):
        yield Rescaled(function, rate, scale, shift)


def _candidates(scale: float, shift: float) -> Iterator[tuple[float, float]]:
    """Yield scales and shifts to try, simple numbers near them first."""
    yield _round(scale), _round(shift)
    yield _round(scale), shift
    yield scale, shift


def _round(number: float) -> float:
    near = round(float(number) * 8) / 8
    return near if abs(near - number) < 2e-6 * max(1.0, abs(number)) else float(number)


def _equal(
    values: np.ndarray,
    plain: np.ndarray,
    sensitivity: np.ndarray,
    scale: float,
    shift: float,
    single: bool,
) -> bool:
    if scale == 0:
        return False
    rest = np.abs(values - scale * plain - shift)
    allowed = _allowed(sensitivity[None], np.array([scale]), np.array([shift]), single)[0]
    return bool((rest <= allowed).all())


def _allowed(
    sensitivities: np.ndarray, scales: np.ndarray, shifts: np.ndarray, single: bool
) -> np.ndarray:
    """Return by how much rounding may separate equal functions, [functions, probes]."""
    sizes, x = np.abs(scales)[:, None], np.abs(probes())
    constants = SINGLE if single else DOUBLE
    scaled_tolerance = constants * (sizes * sensitivities + np.abs(shifts)[:, None])
    return scaled_tolerance + ROUNDING * sizes * (1 + x) * (1 + sensitivities)


def _complexity(match: Rescaled) -> tuple[bool, bool, bool]:
    return match.shift != 0, abs(match.outer) != 1, match.inner != 1


# ----------------------------------------------------------------------------------------
# Functions that are straight between their knots


LARGEST_NUMBER = 12  # functions with more knots are not recognised
STRAIGHT = 256 * 2.0**-53
# Shares of an interval, and distances beyond its end, at which straightness is checked.
SHARES = np.modf(np.arange(1, 24) * (math.sqrt(5) - 1) / 2)[0]
REACH = np.geomspace(1e-7, 3.1e4, 24) * (1 + 0.3 * np.modf(np.arange(24) * math.sqrt(3))[0])


def recognise_piecewise_linear(function: Any) -> Activation | None:
    """Return the piecewise linear activation that a function equals; None if it is none."""
    knots = _sorted_knots(function.knots)
    if knots is None or len(knots) > LARGEST_NUMBER:
        return None
    points = _points(knots)
    values = values_at(function, points.ravel())
    if values is None or not np.isfinite(values).all():
        return None
    heights = values.reshape(points.shape)
    steepest = float(np.abs(_slopes(points, heights)).max())
    lines = [_line(x, y, steepest) for x, y in zip(points, heights, strict=True)]
    return None if None in lines else _assemble(knots, lines)  # type: ignore[arg-type]


def _sorted_knots(knots: tuple[Any, ...]) -> list[float] | None:
    locations = [knot[0] if isinstance(knot, tuple) else knot for knot in knots] or [0.0]
    if not all(isinstance(location, int | float) for location in locations):
        return None
    numbers: list[float] = []
    for location in sorted(float(location) for location in locations if math.isfinite(location)):
        if not numbers or location - numbers[-1] > 1e-9 * max(1.0, abs(location)):
            numbers.append(location)
    return numbers


def _points(knots: list[float]) -> np.ndarray:
    """Return points in every piece, [pieces, points]; those of the outer pieces reach far."""
    inner = [
        np.concatenate([[low + (high - low) * 1e-6], low + (high - low) * SHARES])
        for low, high in itertools.pairwise(knots)
    ]
    return np.stack([knots[0] - REACH, *inner, knots[-1] + REACH])


def _slopes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the slope of every piece, [pieces], between its outermost points."""
    rows = np.arange(len(x))
    first, last = np.argmin(x, axis=-1), np.argmax(x, axis=-1)
    return (y[rows, last] - y[rows, first]) / (x[rows, last] - x[rows, first])


def _line(x: np.ndarray, y: np.ndarray, steepest: float) -> tuple[float, float] | None:
    """Return slope and intercept of a piece; None if it is not straight."""
    slope = _rounded(_slopes(x[None], y[None])[0])
    near = int(np.argmin(np.abs(x)))  # points far away are rounded too coarsely
    intercept = y[near] - slope * x[near]
    slack = STRAIGHT * (np.abs(y) + np.abs(x) * steepest + abs(intercept))
    if not (np.abs(y - slope * x - intercept) <= slack).all():
        return None
    return slope, _rounded(intercept)


def _rounded(number: float) -> float:
    near = round(float(number) * 12) / 12
    return near if abs(near - number) < 1e-13 * max(1.0, abs(number)) else float(number)


def _assemble(knots: list[float], lines: list[tuple[float, float]]) -> Activation:
    corners: list[tuple[float, float]] = []  # knot and jump
    slopes = [lines[0][0]]
    for knot, (left, start), (right, begin) in zip(knots, lines, lines[1:], strict=False):
        jump = (right - left) * knot + begin - start
        size = abs(right * knot) + abs(left * knot) + abs(begin) + abs(start)
        jump = 0.0 if abs(jump) <= 1e-12 * size else _rounded(jump)
        bends = abs(right - left) > 1e-12 * (abs(right) + abs(left))
        if bends and not jump:  # where the lines meet: more exact than bisection
            knot = _rounded((start - begin) / (right - left))
        if jump or bends:
            corners.append((knot, jump))
            slopes.append(right)
    first = corners[0][0] if corners else 0.0
    return _simplest_activation(corners, slopes, _rounded(lines[0][0] * first + lines[0][1]))


def _simplest_activation(
    corners: list[tuple[float, float]], slopes: list[float], origin: float
) -> Activation:
    """Return the function as the activation with the most closed forms."""
    if len(corners) == 1 and corners[0][0] == 0:
        function = corner_at_zero(corners[0][1], slopes, origin)
        if function is not None:
            return function
    knots, jumps = tuple(k for k, _ in corners), tuple(j for _, j in corners)
    return PiecewiseLinear(knots, tuple(slopes), origin, jumps if any(jumps) else ())


def corner_at_zero(jump: float, slopes: Sequence[float], origin: float) -> Activation | None:
    """Return a function of two straight pieces that meet at zero; None if it bends and jumps."""
    left, right = slopes
    if left == right == 0:
        return _scaled(Heaviside(), jump, origin)
    if jump:
        return None
    if left == 0:
        return _scaled(ReLU(), right, origin)
    if right == 0:  # −left · relu(−x)
        return Rescaled(ReLU(), -1.0, -left, origin)
    if left == -right:
        return _scaled(PiecewiseLinear((0.0,), (-1.0, 1.0), name="abs"), right, origin)
    return _scaled(LeakyReLU(left / right), right, origin)


def _scaled(function: Activation, outer: float, shift: float) -> Activation:
    plain = outer == 1 and shift == 0
    return function if plain else Rescaled(function, outer=outer, shift=shift)


# ----------------------------------------------------------------------------------------
# Whether functions of a program may be compared: only if it is traced once


Preimages = tuple[tuple[Any, Any], ...]


class PreimagesFromParts:
    """Base of functions that compute their preimages from those of their parts."""


class RecognitionPolicy(NamedTuple):
    """Whether functions of a program may be evaluated at fixed points, to recognise them."""

    # the program is traced once, so that recognition costs nothing when it runs, or its rule
    # book has rules of its own, which every spelling of a function follows
    allowed: bool
    single: bool  # constants of the program are rounded to single precision

    @classmethod
    def of(cls, base: Any) -> RecognitionPolicy:
        """Return the permission for functions of a Gaussian."""
        allowed = is_traced_once(base.mean) or not base.propagation.rulebook.is_exact
        return cls(allowed, is_single_precision(base.mean))

    def recognised_function(self, function: Any) -> Any:
        """Return the activation that a function equals, if permitted, or itself."""
        return recognised(function, single=self.single) if self.allowed else function

    def preimages(self, function: Any, level: Any) -> Preimages:
        """Return where a function takes a value, and |dx/df| there.

        If the function knows none, crossings of a number are searched for where that is
        permitted.
        """
        solutions = function.preimages(level)
        is_complete = solutions or isinstance(function, PreimagesFromParts)
        if is_complete or not self.allowed or not isinstance(level, int | float):
            return solutions
        return crossings(function, float(level))


NO_RECOGNITION = RecognitionPolicy(allowed=False, single=False)


def preimages_of_levels(levels: Sequence[Any], inner: Any, policy: RecognitionPolicy) -> Preimages:
    """Map pairs (level, width) of f to pairs (x, |dx/d level| · width), f(x) = level."""
    return tuple(
        (location, stretch * width)
        for level, width in levels
        for location, stretch in policy.preimages(inner, level)
    )
