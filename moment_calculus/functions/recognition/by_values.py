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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.functions.recognition.piecewise_linear import recognise_piecewise_linear
from moment_calculus.functions.recognition.probing import values_at
from moment_calculus.functions.table import (
    ACTIVATIONS,
    ELU,
    Activation,
    Heaviside,
    Integrated,
    LeakyReLU,
    PiecewiseLinear,
    Power,
    Rescaled,
    activation,
)

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
    """Find a f(bx) + d that equals the chain, b = ±1 or of :func:`_rates`; None if nothing does."""
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
        values, expected = values_at(function, points), match(points)
    if values is None:
        return False
    # an overflow within the chain says nothing
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
    rise = table.values[:, _SECOND] - table.values[:, _FIRST]
    scales = (values[_SECOND] - values[_FIRST]) / rise
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
