"""Records what operations on random tensors give, in the order of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from moment_calculus.criticism.accuracy.layers import Recorded
from pyro_moments.evaluation.tensor import OBSERVER, MomentTensor, name_of
from pyro_moments.evaluation.user_line import user_line


class Called(NamedTuple):
    """One call of a function of torch on random tensors.

    Args:
        function: of torch.
        line: the user's line.
        values: what each of the results holds; None for certain ones.
    """

    function: Callable
    line: str
    values: tuple[Any, ...]


class Recorder:
    """Records the calls of a program.

    Args:
        caller: file and line from which the program is run, which is no line of it.
    """

    def __init__(self, caller: str) -> None:
        self.caller = caller
        self.calls: list[Called] = []
        self._mark = 0

    def mark(self) -> None:
        """The model begins here."""
        self._mark = len(self.calls)

    def again(self) -> None:
        """The model is run anew: what it called is forgotten."""
        del self.calls[self._mark :]

    def __call__(self, function: Callable, result: Any) -> None:
        """Note a call."""
        line = user_line()
        line = "" if line.startswith(self.caller) else line
        self.calls.append(Called(function, line, tuple(map(held, parts(result)))))

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record what is run inside."""
        token = OBSERVER.set(self)
        try:
            yield
        finally:
            OBSERVER.reset(token)

    def recorded(self) -> list[Recorded]:
        """What was recorded, one for each result."""
        return [
            Recorded(short_name(call.function), call.line, value)
            for call in self.calls
            for value in call.values
        ]


def parts(result: Any) -> tuple[Any, ...]:
    """The results of a call.

    Args:
        result: of a function of torch.
    """
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def held(tensor: Any) -> Any:
    """The value that a random tensor holds; None of others.

    Args:
        tensor: a result.
    """
    return tensor.value if isinstance(tensor, MomentTensor) else None


def short_name(function: Callable) -> str:
    """The name of a function of torch without modules and underscores.

    Args:
        function: of torch.
    """
    raw = name_of(function).rpartition(".")[2]
    name = raw.strip("_")
    turned = raw.startswith("__") and name[0] in "ri"  # __radd__ and __iadd__
    return name[1:] if turned and hasattr(torch.Tensor, f"__{name[1:]}__") else name
