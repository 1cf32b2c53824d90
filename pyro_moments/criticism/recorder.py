"""Record the results of operations on random tensors, in the order of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from moment_calculus.criticism.accuracy.layers import RecordedOperation
from pyro_moments.evaluation.tensor import OBSERVER, MomentTensor, name_of
from pyro_moments.evaluation.user_line import user_line


class Call(NamedTuple):
    """One call of a torch function on random tensors."""

    function: Callable
    line: str  # the user's
    values: tuple[Any, ...]  # of each result; None if it is certain


class Recorder:
    """Records the calls of a program."""

    def __init__(self, caller: str) -> None:
        self.caller = caller  # line that runs the program, which is not part of it
        self.calls: list[Call] = []
        self._mark = 0

    def start_model(self) -> None:
        """Mark the beginning of the model."""
        self._mark = len(self.calls)

    def restart_model(self) -> None:
        """Delete the calls of the model, because it runs again."""
        del self.calls[self._mark :]

    def __call__(self, function: Callable, result: Any) -> None:
        """Record a call."""
        line = user_line()
        line = "" if line.startswith(self.caller) else line
        self.calls.append(Call(function, line, tuple(map(value_of, results_of(result)))))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs in this context."""
        token = OBSERVER.set(self)
        try:
            yield
        finally:
            OBSERVER.reset(token)

    def records(self) -> list[RecordedOperation]:
        """Return the records, one for each result."""
        return [
            RecordedOperation(short_name(call.function), call.line, value)
            for call in self.calls
            for value in call.values
        ]


def results_of(result: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def value_of(tensor: Any) -> Any:
    """Return the value of a random tensor; None for others."""
    return tensor.value if isinstance(tensor, MomentTensor) else None


def short_name(function: Callable) -> str:
    """Return the name of a torch function without modules and underscores."""
    raw = name_of(function).rpartition(".")[2]
    name = raw.strip("_")
    turned = raw.startswith("__") and name[0] in "ri"  # __radd__ and __iadd__
    return name[1:] if turned and hasattr(torch.Tensor, f"__{name[1:]}__") else name
