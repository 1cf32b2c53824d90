"""Sites that are known functions of a Gaussian: the prior of an interval, and their entropies."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.algebra import Scaled
from moment_calculus.functions.table import Exp, Sigmoid, Softplus
from moment_calculus.likelihoods.links import expected_log_odds
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, namespace
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.values import Deferred
from moment_calculus.values.deferred import unscaled

FAR = 1e4  # where the logistic function is at its ends
ROUNDING = 8  # units in the last place


def uniform_prior(value: Any, low: Any, high: Any) -> Array:
    """E[log Uniform(x; low, high)] of an affine image x of a logistic function of a Gaussian.

    Args:
        value: x.
        low: array or number.
        high: likewise.

    Returns:
        Array of the broadcast shape, −∞ where x may leave the interval by more than rounding;
        NotImplemented for any other value, and for random ends.
    """
    sigmoid = isinstance(value, Deferred) and isinstance(unscaled(value.function), Sigmoid)
    if not sigmoid or _any_random(low, high):
        return NotImplemented
    low, high = (_array(part, value) for part in (low, high))
    xp, far = namespace(low), FAR + 0.0 * value.base.mean
    first, last = value(-far), value(far)
    room = high - low + 0 * first
    slack = ROUNDING * float(xp.finfo(room.dtype).eps) * (xp.abs(low) + xp.abs(high))
    lowest, highest = xp.minimum(first, last), xp.maximum(first, last)
    inside = (lowest >= low - slack) & (highest <= high + slack)
    return xp.where(inside, -xp.log(room), -math.inf + 0 * room)


def expected_log_slope(value: Any) -> Array | None:
    """E[log |f′(x)|] of a value f(x) in closed form; None if there is none.

    Args:
        value: a function of a Gaussian: affine maps of the exponential or logistic function, or of
            the softplus.

    Source: log f′ is x for the exponential function, log S(x) + log S(−x) for the logistic one S,
        and log S(x) for the softplus.
    """
    if not isinstance(value, Deferred):
        return None
    function, total = value.function, 0.0 * value.base.mean
    while isinstance(function, Scaled):
        function, total = function.inner, total + _log_size(function.scale, total)
    if isinstance(function, Exp):
        return total + value.base.mean
    if not isinstance(function, Sigmoid | Softplus):
        return None
    one, zero = expected_log_odds(value.base)
    return total + one + (zero if isinstance(function, Sigmoid) else 0.0)


def _any_random(*parameters: Any) -> bool:
    return any(is_value(part) or hasattr(part, "gaussian") for part in parameters)


def _array(parameter: Any, value: Deferred) -> Array:
    like = value.base.mean
    return constants(parameter, like) if isinstance(parameter, int | float) else parameter


def _log_size(scale: Any, like: Array) -> Array:
    xp = namespace(like)
    return xp.log(xp.abs(scale + 0.0 * like))
