"""Recognise functions that are straight between their knots, by their values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from moment_calculus.functions.recognition.probing import values_at
from moment_calculus.functions.table import (
    Activation,
    Heaviside,
    LeakyReLU,
    PiecewiseLinear,
    ReLU,
    Rescaled,
)

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
    places = [knot[0] if isinstance(knot, tuple) else knot for knot in knots] or [0.0]
    if not all(isinstance(place, int | float) for place in places):
        return None
    numbers: list[float] = []
    for place in sorted(float(place) for place in places if math.isfinite(place)):
        if not numbers or place - numbers[-1] > 1e-9 * max(1.0, abs(place)):
            numbers.append(place)
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
        function = _at_zero(corners[0][1], slopes, origin)
        if function is not None:
            return function
    knots, jumps = tuple(k for k, _ in corners), tuple(j for _, j in corners)
    return PiecewiseLinear(knots, tuple(slopes), origin, jumps if any(jumps) else ())


def _at_zero(jump: float, slopes: list[float], origin: float) -> Activation | None:
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
