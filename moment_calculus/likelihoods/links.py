"""Logarithms of functions of a Gaussian, stable in the tails."""

from __future__ import annotations

import math
from functools import reduce
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.combinators import Bounds, Scaled
from moment_calculus.functions.families.named import log_1p_exp
from moment_calculus.functions.series.softplus_mean import smaller_softplus
from moment_calculus.functions.table import Integrated, activation
from moment_calculus.likelihoods.expectations import expected_value
from moment_calculus.numerics.arrays import Array, log_ndtr, namespace
from moment_calculus.operations.elementwise import elementary, logarithms
from moment_calculus.operations.elementwise.complements import log_of_shifted_exponential
from moment_calculus.operations.elementwise.factors import (
    assume_positive,
    is_positive,
    positive_joint,
    several_factors,
)
from moment_calculus.operations.elementwise.joint import of_joint
from moment_calculus.operations.elementwise.normal_probabilities import (
    last_function,
    normal_deviation,
)
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import apply, is_value, scale_shift
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.ancestry import branches_of
from moment_calculus.values.elementwise import with_rule_book

LINEAR = -30.0  # below it x is log softplus(x) up to 5e-14


def _log_softplus(x: Array) -> Array:
    xp = namespace(x)
    return xp.where(x < LINEAR, x, xp.log(log_1p_exp(xp.clip(x, min=LINEAR))))


LOG_SOFTPLUS = Integrated(_log_softplus)
LOG_NDTR = Integrated(log_ndtr)


def _log_within(z: Array) -> Array:
    """Return log(2 Φ(z) − 1) of z > 0, without cancellation close to zero or one."""
    xp, smallest = namespace(z), 1e-4
    small = xp.clip(z, max=1e-2)
    near = xp.log(xp.clip(small, min=1e-30) * math.sqrt(2 / math.pi)) - small * small / 6
    beyond = 2 * xp.exp(log_ndtr(-xp.clip(z, min=smallest)))
    return xp.where(z < 1e-2, near, xp.log1p(-xp.clip(beyond, max=1 - smallest)))


LOG_WITHIN = Integrated(_log_within)


def log(operand: Any) -> Any:
    """Return the logarithm of a value, array or number; raise if a value may not be positive.

    Logarithms of multiples of exp, softplus, sigmoid and Φ are recognised and do not
    underflow; that of a product is the sum of those of its factors.
    """
    if not is_value(operand):
        if hasattr(operand, "gaussian"):
            operand.gaussian()  # raises UnsupportedMoments
        return math.log(operand) if isinstance(operand, int | float) else _log(operand)
    if (factors := several_factors(operand)) is not None:
        return reduce(add, map(log, factors))
    if isinstance(operand, Deferred):
        return _log_of_function(operand)
    return logarithms.log(operand)


def _log_of_function(operand: Deferred) -> Any:
    if (known := log_of_shifted_exponential(operand)) is not None:
        return known
    transform = operand.function
    if (
        isinstance(transform, Scaled)
        and isinstance(transform.shift, int | float)
        and transform.shift == 0
    ):
        return scale_shift(log(operand.of(transform.inner)), 1.0, log(transform.scale))
    function, argument = last_function(operand)
    if function == activation("softplus"):
        return apply(LOG_SOFTPLUS, argument)
    if function in (activation("sigmoid"), activation("ndtr")):
        return log_probabilities(operand)[0]
    if _has_unknown_range(transform):
        return apply(Integrated(_log), operand)
    return elementary.log(operand)


def logs_of_factors(operand: Any) -> list[Any]:
    """Return logarithms whose sum is that of a positive value, each a function of one Gaussian."""
    return [log(factor) for factor in several_factors(operand) or [operand]]


def expected_log(operand: Any) -> Array:
    """Return E[log x] of a positive value, also of a product, or of an array or number."""
    return sum(map(expected_value, logs_of_factors(operand)))


def _has_unknown_range(function: Any) -> bool:
    """Tell if a function declares no range; then the user vouches that it is positive."""
    # Such are the transforms of the frameworks that make sites positive.
    return type(function) is Integrated and function.bounds == (-math.inf, math.inf)


def _log(array: Array) -> Array:
    return namespace(array).log(array)


def _log_of_rest(array: Array) -> Array:
    """Return log(1 − p), finite where p rounds to one."""
    xp = namespace(array)
    return xp.log1p(-xp.clip(array, max=1 - float(xp.finfo(array.dtype).eps)))


def log_probabilities(probability: Any) -> tuple[Any, Any]:
    """Return log p and log(1 − p); raise if a value p may leave [0, 1]."""
    if not is_value(probability):
        return _log(probability), namespace(probability).log1p(-probability)
    logits = logit_of(probability)
    if logits is not None:
        return log_sigmoids(logits)
    function, argument = last_function(probability)
    deviation = normal_deviation(probability)
    if deviation is not None:
        function, argument = activation("ndtr"), deviation
    if function == activation("ndtr"):
        return apply(LOG_NDTR, argument), apply(LOG_NDTR, scale_shift(argument, -1.0))
    if (positive := _twice_beyond_half(probability)) is not None:
        other = apply(LOG_NDTR, scale_shift(positive, -1.0))
        return apply(LOG_WITHIN, positive), scale_shift(other, 1.0, math.log(2))
    joint = positive_joint(probability)
    if joint is not None and joint.bounds.high <= 1:
        ends = Bounds(high=0.0)
        logs = (of_joint(log_of, joint, bounds=ends) for log_of in (_log, _log_of_rest))
        return next(logs), next(logs)
    if not isinstance(probability, Deferred):
        raise UnsupportedMoments(
            "a probability is a Gaussian value, or matched by one, which leaves the interval from "
            "0 to 1",
            sites=probability.sites,
            remedy="pass logits=..., or probs=sigmoid(...)" + OR_DRAW,
        )
    return log(probability), log(scale_shift(probability, -1.0, 1.0))


def _twice_beyond_half(value: Any) -> Any:
    """Return z > 0 of 2 Φ(z) − 1 = erf(z/√2), the chance to be within ± z; else None."""
    scale, shift = 1.0, 0.0
    while isinstance(value, Deferred) and isinstance(value.function, Scaled):
        transform = value.function
        scale, shift = scale * transform.scale, shift + scale * transform.shift
        value = value.of(transform.inner)
    if not all(isinstance(part, int | float) for part in (scale, shift)):
        return None
    function, argument = last_function(value)
    factor = _WITHIN.get((getattr(function, "name", ""), scale, shift))
    if factor is None:
        return None
    deviation = assume_positive(scale_shift(argument, factor))
    return deviation if is_positive(deviation) else None


# From spellings a f(x) + b of 2 Φ(z) − 1, f, a and b, to z / x.
_WITHIN = {
    ("ndtr", 2.0, -1.0): 1.0,
    ("erf", 1.0, 0.0): math.sqrt(2),
    ("erfc", -1.0, 1.0): math.sqrt(2),
    ("erfc", 1.0, -1.0): -math.sqrt(2),
}


def logit_of(probability: Any) -> Any:
    """Return x of a probability S(x) of the logistic function S; else None."""
    function, argument = last_function(probability)
    return argument if function == activation("sigmoid") else None


def log_sigmoids(logits: Any) -> tuple[Any, Any]:
    """Return log S(x) and log S(−x) for the logistic function S of a value or array x."""
    if not is_value(logits):
        return -log_1p_exp(-logits), -log_1p_exp(logits)
    sigmoid = activation("logsigmoid")
    return apply(sigmoid, logits), apply(sigmoid, scale_shift(logits, -1.0))


def expected_log_sigmoids(logits: Any) -> tuple[Array, Array]:
    """Return E[log S(x)] and E[log S(−x)], S logistic, of a value or array x."""
    if _is_gaussian(logits):
        return expected_log_trials(logits, 1, 0, 1), expected_log_trials(logits, 0, 1, 1)
    one, zero = log_sigmoids(logits)
    return expected_value(one), expected_value(zero)


def expected_log_trials(logits: Any, successes: Any, failures: Any, total: Any) -> Array:
    """Return s E[log S(x)] + f E[log S(−x)] of a value or array; ``total`` = s + f."""
    if _is_gaussian(logits):
        smaller, right = _memoised_softplus(logits)
        if not (isinstance(total, int) and total == 1):  # one trial: fewer products of all rows
            smaller, right = total * smaller, total * right
        return (successes - right) * logits.mean - smaller
    one, zero = expected_log_sigmoids(logits)
    return successes * one + failures * zero


def _is_gaussian(logits: Any) -> bool:
    softplus = activation("softplus")
    plain = isinstance(logits, Gaussian) and branches_of(logits) is None
    return plain and with_rule_book(logits, softplus) is softplus


def _memoised_softplus(logits: Gaussian) -> tuple[Array, Array]:
    arrays = logits.memo.arrays
    if smaller_softplus not in arrays:
        arrays[smaller_softplus] = smaller_softplus(logits.mean, logits.variance)
    return arrays[smaller_softplus]
