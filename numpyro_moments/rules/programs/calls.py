"""Rules of calls: functions that JAX compiles, or that have custom derivatives."""

from __future__ import annotations

from typing import Any

from jax.lax import with_sharding_constraint
from jax.sharding import reshard

from moment_calculus.errors import UnsupportedMoments, warn_user
from moment_calculus.operations.shapes.moves import converted
from numpyro_moments.rules.programs.recognised_calls import recognised
from numpyro_moments.rules.table import moment_rule, program_rule


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
    return interpreter.inline(
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
        place, sharding = reshard, parameters["dst_sharding"]
    else:
        place, sharding = with_sharding_constraint, parameters["sharding"]
    # Covariances have other axes, and are left to the compiler.
    shape = tuple(x.shape)
    return converted(x, lambda array: place(array, sharding) if array.shape == shape else array)


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
