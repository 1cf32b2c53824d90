"""Rules of sums, products, quotients, powers, roots and logarithms, and of choices."""

from __future__ import annotations

import math
from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.likelihoods import is_complementary
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.elementwise.activations import as_numbers
from pyro_moments.rules.shapes.conversion import as_number
from pyro_moments.rules.table import (
    MeanCheck,
    moment_rule,
    named,
    named_rule,
)
from pyro_moments.rules.validation import fills_in_ordered_logistic

_LOG_2 = math.log(2)


@named_rule("add __add__ __radd__")
def add(input: Any, other: Any, *, alpha: float = 1) -> Value:
    """Serve ``+``; dependent operands add their exact cross-covariance."""
    return ops.add(input, _times(other, alpha))


@named_rule("sub subtract __sub__", ops.LogSumExp)
def subtract(input: Any, other: Any, *, alpha: float = 1) -> Any:
    """Serve ``-``; logits minus their logsumexp become a LogSoftmax."""
    if alpha == 1 and _is_own_logsumexp(input, other):
        return ops.LogSoftmax(other.source)
    # Its likelihood's rule needs no cumulative probabilities; their covariances take most
    # time.
    both_random = ops.is_value(input) and ops.is_value(other)
    if both_random and fills_in_ordered_logistic():
        return (input.at_mean - other.at_mean) * torch.nan
    input, other = (o.gaussian() if isinstance(o, ops.LogSumExp) else o for o in (input, other))
    return ops.subtract(input, _times(other, alpha))


def _is_own_logsumexp(logits: Any, other: Any) -> bool:
    logsumexp = isinstance(other, ops.LogSumExp) and ops.is_value(logits)
    return logsumexp and logits.gaussian() is other.source


@moment_rule(*named("rsub", "__rsub__"))
def reversed_subtract(input: Any, other: Any, *, alpha: float = 1) -> Value:
    """Serve ``number - random``."""
    return ops.subtract(other, _times(input, alpha))


def _times(operand: Any, alpha: float) -> Any:
    if alpha == 1:
        return operand
    return ops.multiply(operand, alpha) if ops.is_value(operand) else operand * alpha


@named_rule("mul multiply __mul__ __rmul__", MeanCheck)
def multiply(input: Any, other: Any) -> Value:
    """Serve ``*``, also by the outcome of a comparison."""
    input, other = as_number(input), as_number(other)
    return ops.multiply(input, other) if _any(input, other) else input * other


@named_rule("div divide true_divide __truediv__", ops.Softmax, ops.TotalProbability)
def divide(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """Serve ``/`` by a certain divisor; a softmax divided by its own sum stays as it is."""
    if _is_own_total(input, other) and rounding_mode is None:
        return input
    input, other = (
        o.gaussian() if isinstance(o, ops.Softmax | ops.TotalProbability) else o
        for o in (input, other)
    )
    if rounding_mode is not None:
        raise UnsupportedMoments(
            f"rounding_mode={rounding_mode!r} of a random value",
            sites=getattr(input, "sites", ()),
            remedy="divide without rounding" + errors.OR_DRAW,
        )
    return ops.divide(input, other)


def _is_own_total(probabilities: Any, other: Any) -> bool:
    if ops.is_simplex(probabilities) or is_complementary(ops.unstacked(probabilities)):
        return errors.called_by("torch.distributions.categorical")
    both = isinstance(probabilities, ops.Softmax) and isinstance(other, ops.TotalProbability)
    return both and probabilities.source is other.source


@moment_rule(*named("__rtruediv__", "__rdiv__"))
def reversed_divide(input: Any, other: Any) -> Value:
    """Serve ``number / random``, which raises UnsupportedMoments with the reason."""
    return ops.divide(other, input)


@named_rule("addcmul")
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Value:
    """Serve ``torch.addcmul``."""
    product = ops.multiply(tensor1, tensor2) if _any(tensor1, tensor2) else tensor1 * tensor2
    return ops.add(input, _times(product, value))


@named_rule("addcdiv")
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: float = 1) -> Value:
    """Serve ``torch.addcdiv`` by a certain divisor."""
    quotient = ops.divide(tensor1, tensor2) if _any(tensor1, tensor2) else tensor1 / tensor2
    return ops.add(input, _times(quotient, value))


def _any(*operands: Any) -> bool:
    return any(map(ops.is_value, operands))


@named_rule("lerp")
def lerp(input: Any, end: Any, weight: Any) -> Value:
    """Serve ``torch.lerp`` with a certain or a random weight."""
    if not _any(weight):
        return ops.add(
            ops.multiply(input, 1 - weight) if _any(input) else input * (1 - weight),
            ops.multiply(end, weight) if _any(end) else end * weight,
        )
    span = ops.subtract(end, input) if _any(end, input) else end - input
    return ops.add(input, ops.multiply(span, weight))


@moment_rule(*named("positive", "__pos__"))
def positive(input: Value) -> Value:
    """Serve unary ``+``."""
    return input


@named_rule("pow __pow__")
def power(input: Any, exponent: Any) -> Any:
    """Serve ``torch.pow`` and ``**`` with a certain exponent or a certain positive base."""
    if ops.is_value(exponent):
        return ops.exponential(input, exponent)
    if isinstance(exponent, torch.Tensor) and (exponent.ndim or exponent.requires_grad):
        return ops.array_power(input, exponent)
    exponent = as_numbers(exponent=exponent)["exponent"]
    if exponent == 0:
        like = input.mean if hasattr(input, "mean") else input.base.mean
        return torch.ones_like(like)
    return ops.square(input) if exponent == 2 else ops.power(input, exponent)


@moment_rule(*named("__rpow__"))
def reversed_power(input: Any, exponent: Any) -> Any:
    """Serve ``number ** random``."""
    return power(exponent, input)


@moment_rule(*named("where"), takes=(MeanCheck,))
def where(condition: Any, input: Any, other: Any) -> Any:
    """Serve ``torch.where`` with a certain condition, or a comparison of one random value."""
    if isinstance(condition, MeanCheck):
        condition = condition.condition()
    if isinstance(condition, ops.Condition):
        return ops.where_condition(condition, input, other)
    if not ops.is_value(input) and not ops.is_value(other):
        return torch.where(condition, input, other)
    return ops.where(condition, input, other)


# The method Tensor.where has the operand before the condition.
@moment_rule(torch.Tensor.where, takes=(MeanCheck,))
def where_method(input: Any, condition: Any, other: Any) -> Any:
    """Serve ``Tensor.where`` as ``torch.where``."""
    return where(condition, input, other)


@named_rule("masked_fill", MeanCheck)
def masked_fill(input: Any, mask: Any, value: Any) -> Value:
    """Serve ``masked_fill`` with a certain mask, or a comparison; the filling may be infinite."""
    return where(mask, value, input)


@moment_rule(*named("maximum", "fmax"))
def maximum(input: Any, other: Any) -> Value:
    """Serve ``torch.maximum``."""
    return ops.maximum(input, other)


@moment_rule(*named("minimum", "fmin"))
def minimum(input: Any, other: Any) -> Value:
    """Serve ``torch.minimum``."""
    return ops.minimum(input, other)


@named_rule("logaddexp")
def logaddexp(input: Any, other: Any) -> Value:
    """Serve ``torch.logaddexp`` as softplus(x − y) + y."""
    return ops.log_add_exp(input, other)


@named_rule("logaddexp2")
def logaddexp2(input: Any, other: Any) -> Value:
    """Serve ``torch.logaddexp2`` as log₂(2ˣ + 2ʸ)."""
    natural = (
        ops.scale_shift(x, _LOG_2) if ops.is_value(x) else x * _LOG_2 for x in (input, other)
    )
    return ops.scale_shift(ops.log_add_exp(*natural), 1 / _LOG_2)


def _everywhere(name: str, holds: bool) -> None:
    def rule(input: Value) -> torch.Tensor:
        return torch.full(tuple(input.shape), holds, device=input.at_mean.device)

    named_rule(name, summary=f"``torch.{name}``: a random value is finite")(rule)


for _name, _holds in (("isfinite", True), ("isnan", False), ("isinf", False)):
    _everywhere(_name, _holds)


@named_rule("nan_to_num")
def nan_to_num(input: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    """Serve ``torch.nan_to_num``: a random value is finite."""
    return input
