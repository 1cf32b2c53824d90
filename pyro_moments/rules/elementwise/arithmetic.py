"""Rules of sums, differences, products and quotients."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.elementwise import arithmetic as operations
from moment_calculus.operations.normalised.softmax import (
    LogSoftmax,
    LogSumExp,
    Softmax,
    TotalProbability,
)
from moment_calculus.values import Deferred, Value
from pyro_moments.rules.constructors import fills_in_ordered_logistic
from pyro_moments.rules.table import moment_rule, named


@moment_rule(*named("add", "__add__", "__radd__"))
def add(input: Any, other: Any, *, alpha: float = 1) -> Value:
    """Serve ``+``; dependent operands add their exact cross-covariance."""
    return operations.add(input, _times(other, alpha))


moment_rule(*named("__iadd__", "add_"), in_place=True)(add)


@moment_rule(*named("sub", "subtract", "__sub__"), takes=(LogSumExp,))
def subtract(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """Serve ``-``; logits minus their logsumexp become a LogSoftmax."""
    if alpha == 1 and _is_own_logsumexp(input, other):
        return LogSoftmax(other.source)
    # Its likelihood's rule needs no cumulative probabilities; their covariances take most
    # time.
    if _are_functions(input, other) and fills_in_ordered_logistic():
        return input.at_mean * torch.nan
    input, other = (o.gaussian() if isinstance(o, LogSumExp) else o for o in (input, other))
    return operations.subtract(input, _times(other, alpha))


def _are_functions(input: Any, other: Any) -> bool:
    return isinstance(input, Deferred) and isinstance(other, Deferred)


def _is_own_logsumexp(logits: Any, other: Any) -> bool:
    logsumexp = isinstance(other, LogSumExp) and operations.is_value(logits)
    return logsumexp and logits.gaussian() is other.source


@moment_rule(*named("__isub__", "sub_", "subtract_"), in_place=True)
def subtract_in_place(input: Any, other: Any, *, alpha: float = 1) -> Value:
    """Serve ``-=``."""
    return operations.subtract(input, _times(other, alpha))


@moment_rule(*named("rsub", "__rsub__"))
def reversed_subtract(input: Any, other: Any, *, alpha: float = 1) -> Value:
    """Serve ``number - random``."""
    return operations.subtract(other, _times(input, alpha))


def _times(operand: Any, alpha: float) -> Any:
    if alpha == 1:
        return operand
    return operations.multiply(operand, alpha) if operations.is_value(operand) else operand * alpha


@moment_rule(*named("mul", "multiply", "__mul__", "__rmul__"))
def multiply(input: Any, other: Any) -> Value:
    """Serve ``*``."""
    return operations.multiply(input, other)


moment_rule(*named("__imul__", "mul_", "multiply_"), in_place=True)(multiply)


@moment_rule(
    *named("div", "divide", "true_divide", "__truediv__"),
    takes=(Softmax, TotalProbability),
)
def divide(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Serve ``/`` by a certain divisor; a softmax divided by its own sum stays as it is."""
    if _is_own_total(input, other) and rounding_mode is None:
        return input
    input, other = (
        o.gaussian() if isinstance(o, Softmax | TotalProbability) else o for o in (input, other)
    )
    if rounding_mode is not None:
        raise UnsupportedMoments(
            f"rounding_mode={rounding_mode!r} of a random value",
            sites=getattr(input, "sites", ()),
            remedy="divide without rounding" + OR_DRAW,
        )
    return operations.divide(input, other)


def _is_own_total(probabilities: Any, other: Any) -> bool:
    both = isinstance(probabilities, Softmax) and isinstance(other, TotalProbability)
    return both and probabilities.source is other.source


moment_rule(*named("__itruediv__", "div_", "divide_", "true_divide_"), in_place=True)(divide)


@moment_rule(*named("__rtruediv__", "__rdiv__"))
def reversed_divide(input: Any, other: Any) -> Value:
    """Serve ``number / random``, which raises UnsupportedMoments with the reason."""
    return operations.divide(other, input)


@moment_rule(*named("neg", "negative", "__neg__"))
def negative(input: Value) -> Value:
    """Serve unary ``-``."""
    return operations.scale_shift(input, -1.0)


moment_rule(*named("neg_", "negative_"), in_place=True)(negative)


@moment_rule(*named("addcmul"))
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Value:
    """Serve ``torch.addcmul``."""
    product = operations.multiply(tensor1, tensor2) if _any(tensor1, tensor2) else tensor1 * tensor2
    return operations.add(input, _times(product, value))


@moment_rule(*named("addcdiv"))
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Value:
    """Serve ``torch.addcdiv`` by a certain divisor."""
    quotient = operations.divide(tensor1, tensor2) if _any(tensor1, tensor2) else tensor1 / tensor2
    return operations.add(input, _times(quotient, value))


def _any(*operands: Any) -> bool:
    return any(map(operations.is_value, operands))


@moment_rule(*named("lerp"))
def lerp(input: Any, end: Any, weight: Any) -> Value:
    """Serve ``torch.lerp`` with a certain or a random weight."""
    if not _any(weight):
        return operations.add(
            operations.multiply(input, 1 - weight) if _any(input) else input * (1 - weight),
            operations.multiply(end, weight) if _any(end) else end * weight,
        )
    span = operations.subtract(end, input) if _any(end, input) else end - input
    return operations.add(input, operations.multiply(span, weight))


moment_rule(*named("addcmul_"), in_place=True)(addcmul)
moment_rule(*named("addcdiv_"), in_place=True)(addcdiv)
moment_rule(*named("lerp_"), in_place=True)(lerp)


@moment_rule(*named("positive", "__pos__"))
def positive(input: Value) -> Value:
    """Serve unary ``+``."""
    return input
