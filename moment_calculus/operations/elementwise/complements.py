"""Logarithms of 1 − e^{−u} and e^u − 1 for a positive u: complementary log-log, and hurdles."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.combinators import Composed, Scaled
from moment_calculus.functions.integrated import Integrated
from moment_calculus.functions.table import Exp, Expm1
from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.factors import assume_positive, is_positive
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.values import Deferred, Value


def _log_of_probability(u: Array) -> Array:
    """Return log(1 − e^{−u}) of u > 0, without cancellation; finite where u rounds to zero."""
    xp = namespace(u)
    u = xp.clip(u, min=float(xp.finfo(u.dtype).tiny))
    small = u < math.log(2)
    near, far = xp.where(small, u, 1.0), xp.where(small, 1.0, u)
    return xp.where(small, xp.log(-xp.expm1(-near)), xp.log1p(-xp.exp(-far)))


def _log_of_odds(u: Array) -> Array:
    """Return log(e^u − 1) of u > 0, without overflow."""
    return u + _log_of_probability(u)


def log_of_shifted_exponential(value: Value) -> Value | None:
    """Return the logarithm of k eᵛ, k (1 − e^{−u}) or k (eᵘ − 1), k and u positive; else None."""
    if not isinstance(value, Deferred):
        return None
    scale, shift, function = 1.0, 0.0, value.function
    while isinstance(function, Scaled):
        if not all(isinstance(part, int | float) for part in (function.scale, function.shift)):
            return None
        scale, shift = scale * function.scale, shift + scale * function.shift
        function = function.inner
    if not isinstance(function, Composed) or type(function.outer) not in (Exp, Expm1):
        return None
    exponent = value.of(function.inner)
    offset = shift if type(function.outer) is Exp else shift - scale
    if offset == 0 < scale:
        return scale_shift(exponent, 1.0, math.log(scale))
    return _logarithm(exponent, scale) if offset == -scale else None


def _logarithm(exponent: Deferred, scale: float) -> Any:
    """Return log of scale · (e^v − 1) for the exponent v, if that is positive; else None."""
    # The sign of a traced factor is taken as the one for which there is a logarithm.
    positive = assume_positive(exponent if scale > 0 else _negative(exponent))
    if not is_positive(positive):
        return None
    outer = Integrated(_log_of_odds if scale > 0 else _log_of_probability)
    return scale_shift(apply(outer, positive), 1.0, math.log(abs(scale)))


def _negative(value: Deferred) -> Deferred:
    """Return −f(x), with the sign in the outermost factor."""
    function = value.function
    if not isinstance(function, Scaled):
        return value.scaled(-1.0, 0.0)
    return value.of(Scaled(function.inner, -function.scale, -function.shift, function.policy))
