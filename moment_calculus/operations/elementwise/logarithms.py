"""Logarithms of two exponentials' sum, and of vectors that are no Gaussians, such as simplexes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from moment_calculus.functions.combinators import Scaled, value_range
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import constants, namespace
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.factors import refuse_matched
from moment_calculus.operations.elementwise.sums import Sum, add, subtract
from moment_calculus.operations.elementwise.unary import apply, scale_shift
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.normalised.softmax import LogSoftmax, Softmax
from moment_calculus.operations.shapes.concatenation import stack
from moment_calculus.operations.shapes.indexing import unstacked
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.operations.shapes.sticks import logits_of_sticks
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.elementwise import Affine

FINITE, UNKNOWN, CERTAIN = range(3)  # whether elements of an operand are −∞
FAR = 100.0  # at which softplus(x) is x, and at whose negative 0


def log(value: Any) -> Any:
    """Return the logarithm of a positive function, a softmax, a simplex, or a stack of these."""
    if isinstance(value, Softmax):
        return LogSoftmax(value.source)
    known = _log_of_vector(value)
    return elementary.log(value) if known is None else known


def _log_of_vector(value: Any) -> Value | None:
    if not isinstance(value, Gaussian):
        return None
    parts = unstacked(value)
    if parts and any(isinstance(part, Deferred) for part in parts):
        return stack([log(part) for part in parts], -1)
    step = value.step
    if not isinstance(step, Moved):
        logits = logits_of_sticks(value)
        return None if logits is None else _log_of_simplex(logits)
    if step.combines_elements or step.adds_elements:
        return None
    source = _log_of_vector(step.source)
    return None if source is None else step.apply_to(source, value)


def _log_of_simplex(logits: Gaussian) -> Value:
    """Return log S(x_l) + Σ_{i<l} log S(−x_i) for logits x of the sticks, S logistic."""
    # log S(−x) = log S(x) − x, so that two linear maps [components, sticks] do.
    size = logits.shape[-1]
    rest = np.tril(np.ones((size + 1, size)), -1)
    own = constants(rest + np.eye(size + 1, size), logits.mean)
    logs = linear(apply(activation("logsigmoid"), logits), own)
    return subtract(logs, linear(logits, constants(rest, logits.mean)))


def log_add_exp(left: Any, right: Any) -> Value:
    """Return log(eˣ + eʸ) as y + softplus(x − y), with the moments of jointly Gaussian operands.

    Elements that are −∞, the logarithm of zero, go to x, whose softplus is then 0.
    """
    refuse_matched(left, right)
    of_left, of_right = map(_log_zeros, (left, right))
    if of_right == CERTAIN == of_left:
        return _log_add_exp_of_both(left, right)
    if of_right > of_left:
        left, right = right, left
    return add(apply(activation("softplus"), subtract(left, right)), right)


def _log_add_exp_of_both(left: Value, right: Value) -> Value:
    """Return it where both may be −∞: then softplus(x − y ± FAR) is x − y + FAR, or 0."""
    in_left, in_right = (value.at_mean == -math.inf for value in (left, right))
    xp = namespace(in_left)
    left, right = map(_without_log_zeros, (left, right))
    far = xp.where(in_right, FAR, 0.0)
    difference = scale_shift(subtract(left, right), 1.0, xp.where(in_left, -FAR, far))
    back = xp.where(in_left & in_right, -math.inf, -far)
    return scale_shift(add(apply(activation("softplus"), difference), right), 1.0, back)


def _without_log_zeros(value: Any) -> Any:
    """Return a value with 0 for −∞ among what is added to it."""
    step: Any
    if isinstance(value, Gaussian):
        step = value.step
        if isinstance(step, Sum):
            return add(*map(_without_log_zeros, step.inputs))
        if not isinstance(step, Affine) or _log_zeros(value) == FINITE:
            return value
        inner = _without_log_zeros(step.source)
    elif not isinstance(value, Deferred) or _log_zeros(value) == FINITE:
        return value
    else:
        step, inner = value.function, _without_log_zeros(value.of(value.function.inner))
    xp = namespace(value.at_mean)
    shift = step.shift if isinstance(step.shift, int | float) else _finite(xp, step.shift)
    return scale_shift(inner, step.scale, shift)


def _finite(xp: Any, shift: Any) -> Any:
    return xp.where(shift == -math.inf, 0.0, shift)


def _log_zeros(operand: Any) -> int:
    """Return whether elements of a value, an array or a number are −∞."""
    if isinstance(operand, Gaussian):
        step = operand.step
        inside = step.inputs if isinstance(step, Affine | Moved | Sum) else ()
        own = _of_shift(step) if isinstance(step, Affine) else FINITE
        return max([own, *map(_log_zeros, inside)])
    if not isinstance(operand, Deferred):
        return _of_array(operand)
    if not isinstance(operand.function, Scaled):
        return FINITE
    return max(_of_shift(operand.function), _log_zeros(operand.of(operand.function.inner)))


def _of_shift(function: Affine | Scaled) -> int:
    return CERTAIN if function.has_log_zeros else _of_array(function.shift)


def _of_array(array: Any) -> int:
    if (known := value_range(array)) is None:
        return UNKNOWN
    return CERTAIN if known[0] == -math.inf else FINITE
