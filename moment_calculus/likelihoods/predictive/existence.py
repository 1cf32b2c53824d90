"""Predictive moments that do not exist because a parameter may, however rarely, be too small."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace, safe_scale, to_float64
from moment_calculus.values import Deferred

INFINITE_DISTANCE = 1e8  # standard deviations from the mean that count as infinitely far
SMALLEST_POSITIVE = 1e-300  # limit for parameters whose moments exist if they are positive


def limits_at_infinity(parameter: Deferred) -> tuple[Array, Array]:
    """Return a function of a Gaussian at 1e8 standard deviations below and above its mean."""
    mean, deviation = (
        to_float64(parameter.base.mean),
        safe_scale(to_float64(parameter.base.variance)),
    )
    deviation = namespace(mean).where(parameter.base.variance > 0, deviation, 0.0)
    low, high = (
        parameter.function(mean + sign * INFINITE_DISTANCE * deviation) for sign in (-1, 1)
    )
    return low, high


def falls_below(parameter: Any, limit: float) -> Any:
    """Tell for each element whether a random parameter may be less than ``limit``."""
    if not isinstance(parameter, Deferred):
        return False
    low, high = limits_at_infinity(parameter)
    return namespace(low).minimum(low, high) < limit


def infinite_where_undefined(
    moments: Sequence[Array], parameter: Any, limits: Sequence[float]
) -> list[Array]:
    """Return predictive mean, epistemic and aleatoric variance, infinite if they do not exist."""
    # Quadrature does not see beyond 14 standard deviations, where moments may cease to
    # exist.
    mean, variance = limits
    bounds = zip(moments, (mean, mean, variance), strict=True)
    return [infinite_where(falls_below(parameter, limit), part) for part, limit in bounds]


def infinite_where(condition: Any, part: Array, value: float = math.inf) -> Array:
    """Return ``part`` with ``value`` where a condition holds; False means nowhere."""
    return part if condition is False else namespace(part).where(condition, value, part)
