"""Probabilities of the standard normal distribution, by whichever function they are spelt."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.combinators import Composed, Scaled
from moment_calculus.functions.table import Rescaled, activation
from moment_calculus.operations.elementwise.factors import affine_parts
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.values import Deferred

# Φ(√2 c x) by its function f, scale a and shift b of a f(x) + b, with c
SPELLINGS = {
    ("erf", 0.5, 0.5): 1.0,
    ("erf", -0.5, 0.5): -1.0,
    ("erfc", 0.5, 0.0): -1.0,
    ("erfc", -0.5, 1.0): 1.0,
}


def last_function(value: Any) -> tuple[Any, Any]:
    """Return the last function of a chain and its argument; else (None, None)."""
    if not isinstance(value, Deferred) or isinstance(value.function, Scaled):
        return None, None
    if isinstance(value.function, Composed) and not value.is_recognised:
        return value.function.outer, value.of(value.function.inner)
    return _without_inner_scale(value.recognised_function, value.base)


def _without_inner_scale(function: Any, argument: Any) -> tuple[Any, Any]:
    """Return (f, b x) for a function x ↦ f(b x)."""
    if isinstance(function, Rescaled) and (function.outer, function.shift) == (1, 0):
        return function.activation, scale_shift(argument, function.inner)
    return function, argument


def normal_deviation(value: Any) -> Any:
    """Return z of a value Φ(z) that is spelt by erf or erfc; else None."""
    if not isinstance(value, Deferred):
        return None
    inner, scale, shift = affine_parts(value.function)
    if not (isinstance(scale, int | float) and isinstance(shift, int | float)):
        return None
    function, argument = last_function(value.of(inner) if inner is not value.function else value)
    for (name, *line), sign in SPELLINGS.items():
        if line == [scale, shift] and function == activation(name):
            return scale_shift(argument, sign * math.sqrt(2))
    return None
