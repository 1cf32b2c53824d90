"""Priors and entropies of latent sites that are known functions of a Gaussian.

Positive sites and probabilities have E[log x], E[x] and E[log(1 − x)] in closed form, and with them
the expected log density under certain parameters. A prior returns NotImplemented for what it does
not know; the host's density is integrated then.
"""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.functions.algebra import Scaled
from moment_calculus.functions.table import Exp, Sigmoid, Softplus, activation
from moment_calculus.likelihoods.expectations import expected_value
from moment_calculus.likelihoods.links import expected_log_odds, log, log_ratio
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import constants, gammaln, namespace
from moment_calculus.operations.elementwise import positive
from moment_calculus.operations.elementwise.arithmetic import apply, is_value, scale_shift
from moment_calculus.values import Deferred
from moment_calculus.values.deferred import unscaled

FAR = 1e4  # where the logistic function is at its ends
ROUNDING = 8  # units in the last place


def gamma_prior(value: Any, concentration: Any, rate: Any) -> Array:
    """E[log Gamma(x; concentration, rate)] of a positive function x of a Gaussian.

    Args:
        value: x.
        concentration: k, array or number.
        rate: λ, likewise.

    Returns:
        Array of the broadcast shape, or NotImplemented.

    Source: k log λ − log Γ(k) + (k − 1) E[log x] − λ E[x].
    """
    if not _is_positive(value) or _any_random(concentration, rate):
        return NotImplemented
    shape, rate = (_array(part, value) for part in (concentration, rate))
    constant = shape * namespace(rate).log(rate) - gammaln(shape)
    return constant + (shape - 1) * expected_value(log(value)) - rate * expected_value(value)


def inverse_gamma_prior(value: Any, concentration: Any, rate: Any) -> Array:
    """E[log InverseGamma(x; concentration, rate)]; arguments and returns as :func:`gamma_prior`.

    Args:
        value: x.
        concentration: k.
        rate: β.

    Source: k log β − log Γ(k) − (k + 1) E[log x] − β E[1/x].
    """
    if not _is_positive(value) or _any_random(concentration, rate):
        return NotImplemented
    shape, rate = (_array(part, value) for part in (concentration, rate))
    constant = shape * namespace(rate).log(rate) - gammaln(shape)
    inverse = expected_value(positive.power(value, -1.0))
    return constant - (shape + 1) * expected_value(log(value)) - rate * inverse


def exponential_prior(value: Any, rate: Any) -> Array:
    """E[log Exponential(x; rate)]; arguments and returns as :func:`gamma_prior`.

    Args:
        value: x.
        rate: λ.
    """
    if not _is_positive(value) or _any_random(rate):
        return NotImplemented
    rate = _array(rate, value)
    return namespace(rate).log(rate) - rate * expected_value(value)


def half_normal_prior(value: Any, scale: Any) -> Array:
    """E[log HalfNormal(x; scale)]; arguments and returns as :func:`gamma_prior`.

    Args:
        value: x.
        scale: s.

    Source: ½ log(2/π) − log s − ½ E[x²]/s².
    """
    if not _is_positive(value) or _any_random(scale):
        return NotImplemented
    scale = _array(scale, value)
    square = expected_value(positive.power(value, 2.0)) / (scale * scale)
    return 0.5 * math.log(2 / math.pi) - namespace(scale).log(scale) - 0.5 * square


def half_cauchy_prior(value: Any, scale: Any) -> Array:
    """E[log HalfCauchy(x; scale)] of an exponential x; arguments as :func:`gamma_prior`.

    Args:
        value: x.
        scale: s.

    Source: log(2/π) − log s − E[softplus(2 (log x − log s))].
    """
    if positive.exponential_parts(value) is None or _any_random(scale):
        return NotImplemented
    scale = _array(scale, value)
    log_scale = namespace(scale).log(scale)
    double = scale_shift(log(value), 2.0, -2.0 * log_scale)
    return math.log(2 / math.pi) - log_scale - expected_value(apply(activation("softplus"), double))


def beta_prior(value: Any, concentration1: Any, concentration0: Any) -> Array:
    """E[log Beta(p; a, b)] of a logistic function p of a Gaussian.

    Args:
        value: p.
        concentration1: a, array or number.
        concentration0: b, likewise.

    Returns:
        As :func:`gamma_prior`.

    Source: (a − 1) E[log p] + (b − 1) E[log(1 − p)] − log B(a, b).
    """
    logits = log_ratio(value) if isinstance(value, Deferred) else None
    if logits is None or _any_random(concentration1, concentration0):
        return NotImplemented
    one, zero = expected_log_odds(logits)
    a, b = (_array(part, value) for part in (concentration1, concentration0))
    return gammaln(a + b) - gammaln(a) - gammaln(b) + (a - 1) * one + (b - 1) * zero


def uniform_prior(value: Any, low: Any, high: Any) -> Array:
    """E[log Uniform(x; low, high)] of an affine image x of a logistic function of a Gaussian.

    Args:
        value: x.
        low: array or number.
        high: likewise.

    Returns:
        As :func:`gamma_prior`; −∞ where x may leave the interval by more than rounding.
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


def _is_positive(value: Any) -> bool:
    return isinstance(value, Deferred) and value.bounds.positive


def _any_random(*parameters: Any) -> bool:
    return any(is_value(part) or hasattr(part, "gaussian") for part in parameters)


def _array(parameter: Any, value: Deferred) -> Array:
    like = value.base.mean
    return constants(parameter, like) if isinstance(parameter, int | float) else parameter


def _log_size(scale: Any, like: Array) -> Array:
    xp = namespace(like)
    return xp.log(xp.abs(scale + 0.0 * like))
