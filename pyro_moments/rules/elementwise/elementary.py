"""Rules of elementary functions beyond the table of activations, by quadrature, and of signs."""

from __future__ import annotations

import math
from typing import Any

import torch

from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.elementwise.activations import activation_rule
from pyro_moments.rules.table import moment_rule, named

_LOG_2 = math.log(2)
# All names that torch has for some of them.
NAMES = {
    "acos": "acos arccos",
    "acosh": "acosh arccosh",
    "asin": "asin arcsin",
    "asinh": "asinh arcsinh",
    "atan": "atan arctan",
    "digamma": "digamma psi",
    "lgamma": "lgamma gammaln",
}


def _register(kind: str) -> None:
    def rule(input: Value) -> Value:
        return ops.apply_by_name(kind, input)

    rule.__name__ = rule.__qualname__ = kind
    rule.__doc__ = f"Serve ``torch.{kind}``, by quadrature."
    activation_rule(NAMES.get(kind, kind))(rule)


for _kind in ops.FUNCTIONS:
    _register(_kind)


@activation_rule("log_ndtr")
def log_ndtr(input: Value) -> Value:
    """Serve ``torch.special.log_ndtr``, by quadrature."""
    return ops.log_normal_cdf(input)


@activation_rule("logaddexp")
def logaddexp(input: Any, other: Any) -> Value:
    """Serve ``torch.logaddexp`` as softplus(x − y) + y."""
    return ops.log_add_exp(input, other)


@activation_rule("logaddexp2")
def logaddexp2(input: Any, other: Any) -> Value:
    """Serve ``torch.logaddexp2`` as log₂(2ˣ + 2ʸ)."""
    natural = (
        ops.scale_shift(x, _LOG_2) if ops.is_value(x) else x * _LOG_2 for x in (input, other)
    )
    return ops.scale_shift(ops.log_add_exp(*natural), 1 / _LOG_2)


@activation_rule("sign sgn")
def sign(input: Value) -> Value:
    """Serve ``torch.sign``."""
    return ops.sign(input)


def _everywhere(name: str, holds: bool) -> None:
    def rule(input: Value) -> torch.Tensor:
        return torch.full(tuple(input.shape), holds, device=input.at_mean.device)

    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = f"Serve ``torch.{name}``: a random value is finite."
    moment_rule(*named(name))(rule)


for _name, _holds in (("isfinite", True), ("isnan", False), ("isinf", False)):
    _everywhere(_name, _holds)


@activation_rule("nan_to_num")
def nan_to_num(input: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    """Serve ``torch.nan_to_num``: a random value is finite."""
    return input
