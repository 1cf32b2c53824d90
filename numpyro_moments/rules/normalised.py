"""Recognise softmax, logsumexp and normalisations in the primitives that JAX writes for them.

Each primitive makes larger parts of a composite from parts, until one is complete. If
nothing is recognised, the moment rule of the primitive applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Deferred, Gaussian
from numpyro_moments.rules.shapes.moves import MOVES
from numpyro_moments.rules.table import part_rule, register_made

# Steps of the recognition, by primitive.
STEPS = {
    **{name: name for name in "abs add exp is_finite log rsqrt sqrt square stop_gradient".split()},
    "add_any": "add",
    "max": "maximum",
    "mul": "multiply",
    "sub": "subtract",
}


def _attempt(operation: str, plain: Callable, operands: tuple, **options: Any) -> Any:
    """Take a step if there is one; its result keeps the plain rule at hand."""
    found = ops.apply_rule(operation, *operands, **options)
    if isinstance(found, ops.Symbolic):
        return found.set_fallback(lambda: plain(*operands))
    return found


def _step(operation: str) -> Callable:
    def rule(plain: Callable, *operands: Any, **_: Any) -> Any:
        kept = _unchanged(operation, *operands)
        return _attempt(operation, plain, operands) if kept is None else kept

    return rule


for _name, _operation in STEPS.items():
    register_made(_name, _step(_operation), f"Serve the primitive ``{_name}``.", part_rule)

_NEUTRAL = {("add", 0), ("subtract", 0), ("multiply", 1), ("divide", 1)}


def _unchanged(operation: str, *operands: Any) -> Any:
    """Return the random operand of x + 0, x − 0, x · 1 or x / 1; else None."""
    if len(operands) != 2:
        return None
    left, right = operands
    if isinstance(left, int | float):
        return right if operation in ("add", "multiply") and (operation, left) in _NEUTRAL else None
    return left if isinstance(right, int | float) and (operation, right) in _NEUTRAL else None


def _reduction(operation: str) -> Callable:
    def rule(plain: Callable, x: Any, *, axes: Any, **_: Any) -> Any:
        return _attempt(operation, plain, (x,), axes=tuple(map(int, axes)))

    return rule


for _name in ("reduce_sum", "reduce_max"):
    register_made(_name, _reduction(_name), f"Serve the primitive ``{_name}``.", part_rule)

# Steps by exponent.
POWERS = {2.0: "square", 0.5: "sqrt", -0.5: "rsqrt", -1.0: "reciprocal"}


@part_rule("integer_pow")
def integer_power(plain: Callable, x: Any, *, y: int) -> Any:
    """Serve ``x**2`` and ``x**-1``."""
    return _attempt(POWERS[y], plain, (x,)) if y in POWERS else None


@part_rule("pow")
def power(plain: Callable, x: Any, y: Any) -> Any:
    """Serve ``x**0.5`` and other powers that are steps."""
    known = isinstance(y, int | float) and y in POWERS
    return _attempt(POWERS[y], lambda x: plain(x, y), (x,)) if known else None


@part_rule("div")
def divide(plain: Callable, x: Any, y: Any) -> Any:
    """Serve ``/``; one divided by a value is a reciprocal."""
    if (kept := _unchanged("divide", x, y)) is not None:
        return kept
    if isinstance(x, int | float) and x == 1:
        found = _attempt("reciprocal", lambda y: plain(x, y), (y,))
        if found is not None:
            return found
    return _attempt("divide", plain, (x, y))


@part_rule("select_n")
def select(plain: Callable, which: Any, *cases: Any) -> Any:
    """Serve ``jnp.where`` with a known condition, and the guard of a maximum against infinity."""
    known = isinstance(which, jax.Array | np.ndarray | np.generic) and not np.ndim(which)
    known = known and not private_apis.is_traced(which)
    return cases[int(which)] if known else _attempt("select", plain, (which, *cases))


def _movement(in_numpy: Callable) -> Callable:
    def rule(plain: Callable, x: Any, *_: Any, **parameters: Any) -> Any:
        return _moved(x, lambda array: in_numpy(array, **parameters), plain)

    return rule


for _name in ("broadcast_in_dim", "reshape", "squeeze", "transpose"):
    register_made(_name, _movement(MOVES[_name]), f"Serve the primitive ``{_name}``.", part_rule)


@part_rule("convert_element_type")
def convert(plain: Callable, x: Any, *, new_dtype: Any, **_: Any) -> Any:
    """Serve conversions to another precision."""
    real = jnp.issubdtype(new_dtype, jnp.floating)
    return _moved(x, lambda array: array, plain) if real else None


def _moved(x: Any, move: Callable, plain: Callable) -> Any:
    if isinstance(x, ops.VECTOR_FUNCTIONS):
        return x.moved(plain) if _keeps_classes(x.shape, move) else None
    part = ops.View(x) if isinstance(x, Gaussian | Deferred) else x
    result = part.moved(move, plain) if isinstance(part, ops.Symbolic) else None
    if isinstance(result, ops.View) and math.prod(result.shape) > math.prod(part.shape):
        return None  # a part has each element once: what is repeated is not one
    return result


def _keeps_classes(shape: tuple[int, ...], move: Callable) -> bool:
    """Return whether components along the trailing axis stay together, in order."""
    if not shape:
        return False
    index = move(np.arange(math.prod(shape)).reshape(shape))
    if not index.shape or index.shape[-1] != shape[-1]:
        return False
    return bool(np.all(index % shape[-1] == np.arange(shape[-1])) and np.all(np.diff(index) == 1))
