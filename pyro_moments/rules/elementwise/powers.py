"""Rules of powers, roots and logarithms: natural powers of all values, others of positive ones."""

from __future__ import annotations

import math
from typing import Any

import torch

from moment_calculus.operations.elementwise import arithmetic as operations
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.arithmetic import is_value, scale_shift
from moment_calculus.values import Value
from pyro_moments.rules.elementwise.activations import activation_rule, as_numbers
from pyro_moments.rules.table import moment_rule, named


@activation_rule("square")
def square(input: Value) -> Value:
    """Serve ``torch.square``."""
    return operations.square(input)


@activation_rule("sqrt")
def sqrt(input: Value) -> Value:
    """Serve ``torch.sqrt`` of a positive function of a Gaussian."""
    return elementary.power(input, 0.5)


@activation_rule("rsqrt")
def rsqrt(input: Value) -> Value:
    """Serve ``torch.rsqrt`` of a positive function of a Gaussian."""
    return elementary.power(input, -0.5)


@activation_rule("reciprocal")
def reciprocal(input: Value) -> Value:
    """Serve ``torch.reciprocal`` of a positive function of a Gaussian."""
    return elementary.power(input, -1.0)


@activation_rule("log")
def log(input: Value) -> Value:
    """Serve ``torch.log`` of a positive function of a Gaussian."""
    return elementary.log(input)


@activation_rule("log1p")
def log1p(input: Value) -> Value:
    """Serve ``torch.log1p`` of a function of a Gaussian that is above −1."""
    return elementary.log1p(input)


@activation_rule("log2")
def log2(input: Value) -> Value:
    """Serve ``torch.log2`` of a positive function of a Gaussian."""
    return scale_shift(elementary.log(input), 1 / math.log(2))


@activation_rule("log10")
def log10(input: Value) -> Value:
    """Serve ``torch.log10`` of a positive function of a Gaussian."""
    return scale_shift(elementary.log(input), 1 / math.log(10))


@activation_rule("pow")
def power(input: Any, exponent: Any) -> Any:
    """Serve ``torch.pow`` and ``**`` with a certain exponent or a certain positive base."""
    if is_value(exponent):
        return elementary.exponential(input, exponent)
    if isinstance(exponent, torch.Tensor) and (exponent.ndim or exponent.requires_grad):
        return elementary.array_power(input, exponent)
    exponent = as_numbers(exponent=exponent)["exponent"]
    if exponent == 0:
        like = input.mean if hasattr(input, "mean") else input.base.mean
        return torch.ones_like(like)
    return operations.square(input) if exponent == 2 else elementary.power(input, exponent)


moment_rule(*named("__pow__"))(power)
moment_rule(*named("__ipow__"), in_place=True)(power)


@moment_rule(*named("__rpow__"))
def reversed_power(input: Any, exponent: Any) -> Any:
    """Serve ``number ** random``."""
    return power(exponent, input)
