"""Programs of a few operations by NumPy: outside of jax.jit JAX compiles every operation by itself.

For tests whose claim does not depend on XLA. Programs with loops or of more operations, such as a
step of a training, are compiled as they are for users.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
from jax._src import array, pjit

from tests.checks.jaxprs import FUNCTIONS, INNER, RANDOM, evaluate

LARGEST = 30  # operations
NAME = "_pjit_call_impl_python"  # private; where JAX has none, everything is compiled
_compiled = getattr(pjit, NAME, None)


def _operations(closed: Any) -> float:
    """How many there are; infinitely many where NumPy does not have one."""
    total = 0.0
    for equation in closed.jaxpr.eqns:
        inner = next((equation.params[name] for name in INNER if name in equation.params), None)
        name = equation.primitive.name
        if inner is not None and name != "scan":
            total += _operations(inner)
        else:
            total += 1 if name in FUNCTIONS or name in RANDOM else float("inf")
        if total > LARGEST:
            break
    return total


def _is_plain(argument: Any) -> bool:
    """Whether an argument is an array on one device, without keys of random numbers."""
    if not isinstance(argument, jax.Array):
        return True
    plain = not jax.dtypes.issubdtype(argument.dtype, jax.dtypes.extended)
    return plain and len(argument.sharding.device_set) == 1


def _as_array(value: Any, aval: Any) -> jax.Array:
    """Of JAX, with the weak type of a number of Python where it has one."""
    found = jax.device_put(np.array(value, aval.dtype, order="C"))
    if not aval.weak_type:
        return found
    return array.ArrayImpl(aval, found.sharding, found._arrays, committed=False)


def _by_numpy(*arguments: Any, jaxpr: Any, **options: Any) -> Any:
    """What JAX's own function returns; without a compiled program, it asks again for every call."""
    outputs = [variable.aval for variable in jaxpr.jaxpr.outvars]
    plain = all(map(_is_plain, arguments)) and not any(options["donated_invars"])
    keys = any(jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended) for aval in outputs)
    if not plain or keys or jaxpr.effects or _operations(jaxpr) > LARGEST:
        return _compiled(*arguments, jaxpr=jaxpr, **options)
    with np.errstate(all="ignore"):
        results = evaluate(jaxpr, [np.asarray(argument) for argument in arguments])
    return [_as_array(*pair) for pair in zip(results, outputs, strict=True)], None, None, []


@contextmanager
def by_numpy() -> Iterator[None]:
    """While it is entered, small programs are not compiled."""
    with patch.object(pjit, NAME, _by_numpy) if _compiled else nullcontext():
        yield
