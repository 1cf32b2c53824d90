"""Collect the arrays among the arguments of a model, for ArviZ's group ``constant_data``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np


def constant_data(
    model: Callable,
    args: tuple,
    named: Mapping[str, Any],
    observed: Iterable[np.ndarray],
    as_array: Callable[[Any], np.ndarray | None],
) -> dict[str, np.ndarray]:
    """Return the arrays among a model's arguments by name, without empty ones and observations."""
    values = [np.asarray(value) for value in observed]
    arrays = {name: as_array(value) for name, value in _by_name(model, args, named).items()}
    return {
        name: array
        for name, array in arrays.items()
        if array is not None and array.size and not any(_is_same(array, value) for value in values)
    }


def as_array(value: Any) -> np.ndarray | None:
    """Return an argument as an array of numbers, or None if it is not numeric."""
    kinds = np.ndarray | list | tuple | int | float
    if not (isinstance(value, kinds) or hasattr(value, "__array__")):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged lists, random keys of JAX
        return None
    return array if array.dtype.kind in "biuf" else None


def split_arguments(given: tuple | Mapping[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Split the option ``predictions`` into the model's positional and keyword arguments."""
    if isinstance(given, Mapping):
        return (), dict(given)
    if not isinstance(given, tuple):
        raise TypeError(
            "predictions takes the model's arguments, a tuple or a dictionary by name, not "
            f"{type(given).__name__}"
        )
    return given, {}


def _by_name(model: Callable, args: tuple, named: Mapping[str, Any]) -> dict[str, Any]:
    called = getattr(model, "forward", model)  # a torch.nn.Module is called by its forward
    try:
        bound = inspect.signature(called).bind(*args, **named)
    except (TypeError, ValueError):  # no signature, or it does not fit the arguments
        return {**{f"argument_{at}": arg for at, arg in enumerate(args)}, **named}
    arguments: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            arguments |= {f"{name}_{at}": part for at, part in enumerate(value)}
        elif kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[name] = value
    return arguments


def _is_same(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape or one.dtype.kind not in "biuf":
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
