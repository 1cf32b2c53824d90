"""Recognise calls of functions of JAX that have rules, such as softplus, silu and logaddexp.

A call is recognised by its name and its source file inside JAX: a user's function of the
same name is evaluated like any other. Other functions of the table are recognised by
their values.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.arithmetic import add, apply, is_value, subtract
from moment_calculus.operations.elementwise.elementary import LOG_NDTR
from moment_calculus.operations.recognition import resolved
from moment_calculus.values import Value
from moment_calculus.values.deferred import Composite

_HOME = os.path.join(os.path.dirname(os.path.abspath(jax.__file__)), "")
# Names of activations by those of JAX's functions.
_NAMES = {
    "hard_sigmoid": "hardsigmoid",
    "hard_silu": "hardswish",
    "hard_tanh": "hardtanh",
    "log_sigmoid": "logsigmoid",
    "mish": "mish",
    "relu": "relu",
    "relu6": "relu6",
    "selu": "selu",
    "silu": "silu",
    "soft_sign": "softsign",
    "softplus": "softplus",
}


def _logaddexp(x: Any, y: Any) -> Value:
    """Return softplus(x − y) + y, with the moments of jointly Gaussian operands."""
    return add(apply(activation("softplus"), subtract(x, y)), y)


def _plain(name: str) -> Callable[[Value], Value]:
    return lambda x: apply(activation(name), x)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: _plain(kind) for name, kind in _NAMES.items()},
    "log_ndtr": lambda x: apply(LOG_NDTR, x),
    "logaddexp": _logaddexp,
}


def recognised(equation: Any, operands: list[Any]) -> Value | None:
    """Return the result of a JAX function that has a rule; None if the call is to be evaluated."""
    rule = FUNCTIONS.get(function_of_jax(equation))
    if rule is None or rule.__code__.co_argcount != len(operands):
        return None
    values = [resolved(operand) for operand in operands]
    values = [value.gaussian() if isinstance(value, Composite) else value for value in values]
    return rule(*values) if _fits(equation, values) else None


def function_of_jax(equation: Any) -> str:
    """Return the name of the JAX function that an equation calls; empty for any other."""
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    information = getattr(getattr(program, "jaxpr", program), "debug_info", None)
    name, _, place = str(getattr(information, "func_src_info", "")).partition(" at ")
    return name if place.startswith(_HOME) else ""


def _fits(equation: Any, operands: list[Any]) -> bool:
    """Return whether the random operands have the shape of the one result."""
    shapes = [output.aval.shape for output in equation.outvars]
    return all([operand.shape] == shapes for operand in operands if is_value(operand))
