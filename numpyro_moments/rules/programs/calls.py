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
from jax.lax import with_sharding_constraint
from jax.sharding import reshard

from moment_calculus import UnsupportedMoments, warn_user
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Value
from numpyro_moments.rules.programs.units import one_hot_value
from numpyro_moments.rules.table import moment_rule, program_rule

_HOME = os.path.join(os.path.dirname(os.path.abspath(jax.__file__)), "")
_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
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


def _plain(name: str) -> Callable[[Value], Value]:
    return lambda x: ops.apply(ops.activation(name), x)


_MATRICES = {"_diag": ops.diagonal_matrix}  # their results have an axis more
FUNCTIONS: dict[str, Callable[..., Value]] = {
    **{name: _plain(kind) for name, kind in _NAMES.items()},
    "cholesky": ops.cholesky,
    "log_ndtr": ops.FUNCTIONS["log_ndtr"].rule,
    "logaddexp": ops.log_add_exp,
}


def recognised(equation: Any, operands: list[Any]) -> Value | None:
    """Return the result of a JAX function that has a rule; None for others."""
    name, line = _function(equation)
    if name == "_one_hot_below" and line.startswith(_FOLDER):
        return one_hot_value(*operands)
    name = name if line.startswith(_HOME) else ""
    if name in _MATRICES and ops.is_value(operands[0]):
        vector = operands[0]
        square = equation.outvars[0].aval.shape == vector.shape * 2
        return _MATRICES[name](vector) if square else None
    rule = FUNCTIONS.get(name)
    if rule is None or rule.__code__.co_argcount != len(operands):
        return None
    values = [ops.resolved(operand) for operand in operands]
    values = [value.gaussian() if isinstance(value, Composite) else value for value in values]
    return rule(*values) if _fits(equation, values) else None


def function_of_jax(equation: Any) -> str:
    """Return the name of the JAX function that an equation calls; empty for any other."""
    name, line = _function(equation)
    return name if line.startswith(_HOME) else ""


def _function(equation: Any) -> tuple[str, str]:
    """Return the name of the function that an equation calls, and its file."""
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    information = getattr(getattr(program, "jaxpr", program), "debug_info", None)
    name, _, line = str(getattr(information, "func_src_info", "")).partition(" at ")
    return name, line


def _fits(equation: Any, operands: list[Any]) -> bool:
    """Return whether the random operands have the shape of the one result."""
    results = [output.aval.shape for output in equation.outvars]
    return all([operand.shape] == results for operand in operands if ops.is_value(operand))


@program_rule(
    "jit",
    "closed_call",
    "core_call",
    "remat2",
    "custom_jvp_call",
    "custom_vjp_call",
    inlined=True,
)
def call(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Serve ``jax.jit``, ``jax.checkpoint``, ``jax.custom_jvp`` and ``jax.custom_vjp``."""
    # A function of JAX with a rule is served by it, any other call by its program. The
    # derivatives of moments are those of the moment rules, not the custom ones. Inside
    # jax.checkpoint, moments of intermediate values are kept, not computed again.
    known = recognised(equation, operands)
    if known is not None:
        return [known]
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return interpreter.run_inline(
        getattr(program, "jaxpr", program), getattr(program, "consts", ()), operands
    )


@moment_rule("name", "pvary")
def unchanged(x: Any, **_: Any) -> Any:
    """Serve ``jax.ad_checkpoint.checkpoint_name`` and other marks."""
    return x


@moment_rule("sharding_constraint", "reshard")
def placed(x: Any, **parameters: Any) -> Any:
    """Serve ``jax.lax.with_sharding_constraint``: mean and variance are placed alike."""
    if "dst_sharding" in parameters:
        primitive, sharding = reshard, parameters["dst_sharding"]
    else:
        primitive, sharding = with_sharding_constraint, parameters["sharding"]
    # Covariances have other axes, and are left to the compiler.
    shape = tuple(x.shape)
    return ops.converted(
        x, lambda array: primitive(array, sharding) if array.shape == shape else array
    )


@moment_rule("debug_callback", "debug_print")
def shown(*operands: Any, **_: Any) -> list[Any]:
    """Serve ``jax.debug.print`` and ``callback``: show nothing, and warn once for each line."""
    warn_user(
        "a random value has no number that could be printed or handed to a callback: the call is "
        "left out; numpyro_moments.propagate and predict return moments",
        UserWarning,
    )
    return []


@moment_rule("pure_callback", "io_callback")
def called_back(*operands: Any, **_: Any) -> None:
    """Raise for ``jax.pure_callback`` and ``jax.experimental.io_callback``."""
    raise UnsupportedMoments(
        "a Python function is called with a random value, and what it computes is not known",
        remedy="write it in jax.numpy, register a rule for a primitive of your own with "
        "@numpyro_moments.moment_rule, or draw the latent sites by naming them in "
        "sample_sites=",
    )


@moment_rule("shard_map")
def mapped_over_shards(*operands: Any, **_: Any) -> None:
    """Raise for ``jax.shard_map``: its program sees one shard, and random values are whole."""
    raise UnsupportedMoments(
        "jax.shard_map of a random value",
        remedy="let JAX partition the program: shard the data, or use "
        "jax.lax.with_sharding_constraint inside jax.jit",
    )
