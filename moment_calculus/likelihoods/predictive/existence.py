"""Predictive moments that do not exist, however unlikely the parameters are which have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import double, namespace, safe_scale
from moment_calculus.values import Deferred

FAR = 1e8  # standard deviations
LEAST = 1e-300  # limit of parameters that have moments as long as they are positive


def ends(parameter: Deferred) -> tuple[Array, Array]:
    """A function of a Gaussian, 1e8 of its standard deviations to either side.

    Args:
        parameter: value.
    """
    mean, deviation = double(parameter.base.mean), safe_scale(double(parameter.base.variance))
    deviation = namespace(mean).where(parameter.base.variance > 0, deviation, 0.0)
    low, high = (parameter.function(mean + sign * FAR * deviation) for sign in (-1, 1))
    return low, high


def falls_below(parameter: Any, limit: float) -> Any:
    """Whether a random parameter may be less than a number, for each of its elements.

    Args:
        parameter: value, array or number.
        limit: the number.
    """
    if not isinstance(parameter, Deferred):
        return False
    low, high = ends(parameter)
    return namespace(low).minimum(low, high) < limit


def existing(moments: Sequence[Array], parameter: Any, limits: Sequence[float]) -> list[Array]:
    """Predictive moments, infinite where they do not exist.

    Quadrature sees no more than 14 standard deviations; what is beyond them has a moment neither.

    Args:
        moments: predictive mean, epistemic and aleatoric variance.
        parameter: which decides, value, array or number.
        limits: what it is at least where there is a mean, and where there is a variance.
    """
    mean, variance = limits
    bounds = zip(moments, (mean, mean, variance), strict=True)
    return [infinite_where(falls_below(parameter, limit), part) for part, limit in bounds]


def infinite_where(condition: Any, part: Array, value: float = math.inf) -> Array:
    """The same numbers, others where there are none.

    Args:
        condition: array of truth values; False for nowhere.
        part: array.
        value: what is written there.
    """
    return part if condition is False else namespace(part).where(condition, value, part)
