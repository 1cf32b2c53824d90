"""The private APIs of JAX and NumPyro that the front end uses; each names the version checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax._src.core import EvalTrace as EvalTrace  # evaluates operations as they come (JAX 0.10)
from jax._src.core import eval_trace
from jax.extend import source_info_util
from jax.extend.core import ClosedJaxpr as ClosedJaxpr  # a traced program (JAX 0.10)
from jax.extend.core import Jaxpr as Jaxpr  # the same without its constants
from jax.extend.core import Primitive, set_current_trace, take_current_trace
from numpyro.primitives import _PYRO_STACK
from numpyro.util import _validate_model


def new_primitive(name: str, result: Callable[..., Any]) -> Any:
    """Return a primitive; ``result`` gives shape and dtype of its result (JAX 0.10)."""
    primitive = Primitive(name)
    primitive.def_abstract_eval(result)
    return primitive


def shaped(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the shape and dtype of the result of a primitive (JAX 0.10)."""
    return jax.core.ShapedArray(shape, dtype)


def apply_equation(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Apply the primitive of an equation, as at its line, and list the results (JAX 0.10)."""
    primitive = equation.primitive
    line = equation.source_info.traceback
    with source_info_util.user_context(line), equation.ctx.manager:
        result = primitive.bind(*operands, **primitive.get_bind_params(equation.params))
    return list(result) if primitive.multiple_results else [result]


def evaluate(program: Any, consts: Sequence[Any], *operands: Any) -> list[Any]:
    """Evaluate an open program with its constants (JAX 0.10)."""
    return jax.core.eval_jaxpr(program, consts, *operands)


def active_handlers() -> list[Any]:
    """Return the handlers around the caller (NumPyro 0.22)."""
    return list(_PYRO_STACK)


def validate_model(trace: dict[str, dict]) -> None:
    """Warn of batch axes of a model's sites that no plate declares (NumPyro 0.22)."""
    _validate_model(trace, plate_warning="loose")


def evaluating_by(trace: Any) -> Any:
    """Return the context in which a trace receives the operations of JAX (JAX 0.10)."""
    return set_current_trace(trace)


def evaluating() -> Any:
    """Return the context in which JAX evaluates operations as they come (JAX 0.10)."""
    return set_current_trace(eval_trace)


def is_evaluating() -> bool:
    """Return whether JAX evaluates operations as they come (JAX 0.10)."""
    with take_current_trace() as trace:
        return trace is eval_trace


def weak(array: jax.Array) -> jax.Array:
    """Return an array whose dtype gives way to that of others (JAX 0.10)."""
    shaped = jax.core.ShapedArray(array.shape, array.dtype, weak_type=True)
    return type(array)(shaped, array.sharding, [array], committed=False)  # type: ignore[call-arg]
