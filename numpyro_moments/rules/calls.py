"""Calls: the program of a function that JAX has compiled or differentiates in its own way."""

from __future__ import annotations

from typing import Any

from numpyro_moments.rules.table import program_rule


@program_rule("jit", "closed_call", "core_call", "remat2", "checkpoint", inlined=True)
def call(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Serve ``jax.jit`` and ``jax.checkpoint`` by what they call."""
    program = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
    return interpreter.inline(
        getattr(program, "jaxpr", program), getattr(program, "consts", ()), operands
    )


@program_rule("custom_jvp_call", "custom_vjp_call", inlined=True)
def custom_derivative(interpreter: Any, equation: Any, operands: list[Any]) -> list[Any]:
    """Serve functions with derivatives of their own by what they compute.

    The derivative of the moments is that of the moment rules.
    """
    program = equation.params["call_jaxpr"]
    return interpreter.inline(program.jaxpr, program.consts, operands)
