"""Make arrays of a model's arguments: of NumPy's arrays, lists, data frames and their columns."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from moment_calculus.predictions.frames import is_frame, matrix_of_frame, numeric
from moment_calculus.predictions.moments import Moments


def is_list_of_numbers(value: Any) -> bool:
    """Return whether a value is a list of numbers or text, or of such lists of one length."""
    if not isinstance(value, list) or not value:
        return False
    if all(isinstance(item, int | float | str | np.generic) for item in value):
        return True
    lengths = {len(item) if isinstance(item, list) else -1 for item in value}
    return len(lengths) == 1 and all(map(is_list_of_numbers, value))


def columns_by_name(
    data: tuple, by_name: dict[str, Any], parameters: Mapping[str, inspect.Parameter]
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a model, with a frame alone taken apart into columns by name.

    Where none of the arguments that the model needs is a column, the frame is a matrix.
    """
    if len(data) != 1 or not is_frame(data[0]):
        return data, by_name
    frame, columns = data[0], [str(column) for column in data[0].columns]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = {n: p for n, p in parameters.items() if n not in by_name and p.kind not in variadic}
    needed = [name for name, part in wanted.items() if part.default is part.empty]
    if not any(name in columns for name in needed or wanted):
        return data, by_name
    if missing := [name for name in needed if name not in columns]:
        raise ValueError(
            f"the frame has no column '{missing[0]}', which the model takes: its columns are "
            f"{', '.join(columns)}; rename one, or pass the arguments one by one"
        )
    return (), {**by_name, **{name: frame[name] for name in wanted if name in columns}}


def with_arrays(
    data: tuple,
    by_name: Mapping[str, Any],
    names: list[str],  # of the model's parameters, in order
    own: type | tuple[type, ...],  # the framework's arrays
    convert: Callable[[Any], Any],  # makes one of NumPy's, or casts one
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a model with the framework's arrays."""
    rows = _rows([*data, *by_name.values()])

    def made(name: str, part: Any) -> Any:
        return convert(part) if isinstance(part, own) else convert_argument(name, part)

    def convert_argument(name: str, part: Any) -> Any:
        if is_frame(part):
            return convert(matrix_of_frame(name, part))
        if is_list_of_numbers(part) and (len(part) in rows or _has_fractions(part)):
            return convert(numeric(name, np.asarray(part)))
        if hasattr(part, "__array__") and not isinstance(part, np.generic):
            return convert(numeric(name, _as_numpy(part)))
        return _inside(name, part, made)

    return each_argument(data, by_name, names, made)


def each_argument(
    data: tuple,
    by_name: Mapping[str, Any],
    names: list[str],  # of the model's parameters, in order
    change: Callable[[str, Any], Any],  # from the name of an argument and the argument
) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a model, changed one by one."""
    known = [*names, *(f"argument {index}" for index in range(len(names), len(data)))]
    args = tuple(change(name, part) for name, part in zip(known, data, strict=False))
    return args, {name: change(name, part) for name, part in by_name.items()}


def _inside(name: str, part: Any, made: Callable[[str, Any], Any]) -> Any:
    """Return moments and containers with what is made of their parts."""
    if isinstance(part, Moments):
        return part.mapped(lambda array: made(name, array))
    if isinstance(part, dict):
        return {key: made(f"{name}[{key!r}]", item) for key, item in part.items()}
    if type(part) in (tuple, list):
        return type(part)(made(f"{name}[{index}]", item) for index, item in enumerate(part))
    return part


def _as_numpy(argument: Any) -> np.ndarray:
    if hasattr(argument, "detach"):  # a tensor that may need gradients, or be on a device
        argument = argument.detach().cpu()
    if hasattr(argument, "to_numpy"):  # a column of a frame
        return argument.to_numpy()
    return np.asarray(argument)


def _has_fractions(argument: Any) -> bool:
    if isinstance(argument, list):
        return any(map(_has_fractions, argument))
    return isinstance(argument, float | np.floating)


def _rows(parts: Iterable[Any]) -> set[int]:
    """Return the numbers of rows of arrays, frames and lists; those of lists if they agree."""
    arrays = {len(p) for p in parts if getattr(p, "shape", ())}
    lists = [len(p) for p in parts if is_list_of_numbers(p)]
    nested = {len(p) for p in parts if is_list_of_numbers(p) and isinstance(p[0], list)}
    return arrays | nested | {size for size in lists if lists.count(size) > 1}


def check_call(
    function: Callable, args: tuple, kwargs: Mapping[str, Any], verb: str
) -> inspect.BoundArguments | None:
    """Return a model's arguments; raise TypeError if it does not take them."""
    try:
        # A decorator may change the arguments of what it wraps.
        function = getattr(function, "forward", function)
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        names = "".join(f", {name}=" for name in kwargs)
        left = re.search("required argument: '(.*)'", str(error)) if args or kwargs else None
        cure = f", or give '{left[1]}' a default in the model, {left[1]}=None" if left else ""
        raise TypeError(
            f"the model takes {brief(signature)}, and {verb} got {len(args)} argument(s) for it"
            f"{names}: {error}; pass the model's own arguments, as it takes them{cure}"
        ) from None


def brief(signature: inspect.Signature) -> str:
    """Return the parameters of a function but for its options, without annotations."""
    parts = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    kept = [part for part in parts if part.kind is not part.KEYWORD_ONLY]
    return str(inspect.Signature(kept))
