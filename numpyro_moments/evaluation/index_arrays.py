"""Index arrays of a program: equal ones are one object, so that rules can compare them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from moment_calculus.numerics import private_apis
from numpyro_moments.rules.shapes.indexing import Columns


class IndexArrays:
    """Evaluates each equation on index arrays once, and remembers what was concatenated."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[list[Any], list[Any]]] = {}  # operands, results
        self._columns: dict[int, tuple[Any, Columns]] = {}  # by the id of the array
        self._places: dict[Any, Any] = {}

    def evaluate(
        self, equation: Any, operands: list[Any], apply: Callable[[Any, list[Any]], list[Any]]
    ) -> list[Any]:
        """Return the results of an equation; those of an equal one if they are index arrays."""
        key = _key(equation, operands)
        if key is None:
            return apply(equation, operands)
        if key not in self._seen:
            # the operands stay alive with their ids
            self._seen[key] = operands, apply(equation, operands)
        results = self._seen[key][1]
        if _joins_columns(equation, operands):
            self._columns[id(results[0])] = results[0], Columns(tuple(operands), self._places)
        return results

    def columns_of(self, array: Any) -> Any:
        """Return the columns that an array was concatenated of, or its only one; else the array."""
        if id(array) in self._columns:
            return self._columns[id(array)][1]
        single = array.ndim and array.shape[-1] == 1
        return Columns((array,), self._places) if single else array


def _key(equation: Any, operands: list[Any]) -> Any:
    """Return what tells an equation on index arrays from others; None for other equations."""
    whole = all(_is_whole(out.aval.dtype) for out in equation.outvars)
    if not (whole and operands and equation.outvars):
        return None
    known = tuple(map(_identity, operands))
    key = equation.primitive.name, tuple(sorted(equation.params.items())), known
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _is_whole(dtype: Any) -> bool:
    return jnp.issubdtype(dtype, jnp.integer) or jnp.issubdtype(dtype, jnp.bool_)


def _identity(operand: Any) -> Any:
    """Return the number that an operand is, or the identity of an array."""
    if (
        np.ndim(operand)
        or private_apis.is_traced(operand)
        or not _is_whole(jnp.result_type(operand))
    ):
        return id(operand)
    number = np.asarray(operand)
    return number.item(), number.dtype.name


def _joins_columns(equation: Any, operands: list[Any]) -> bool:
    """Whether an equation concatenates an index array of columns."""
    if equation.primitive.name != "concatenate":
        return False
    last = equation.params["dimension"] == np.ndim(operands[0]) - 1
    return last and all(np.shape(part)[-1] == 1 for part in operands)
