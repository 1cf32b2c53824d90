"""Count the memory of the values that a program makes, and stop it where that is too much."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

# Arrays of its size that live while a value is made, measured for rectifiers between wide layers:
# a mean has a variance and pieces of both, a covariance its correlations and powers of these.
OF_A_MEAN, OF_A_COVARIANCE = 8, 4


class TooLarge(BaseException):
    """Stops a program whose values exceed a limit; no handler of errors on the way may catch it."""


class Memory:
    """The bytes that values take, estimated from their shapes."""

    def __init__(self, limit: float) -> None:
        self.limit, self.bytes = limit, 0.0

    def add(self, count: float) -> None:
        """Count bytes; raise TooLarge beyond the limit."""
        self.bytes += count
        if self.bytes > self.limit:
            raise TooLarge


_MEMORY: ContextVar[Memory | None] = ContextVar("memory of values", default=None)


@contextmanager
def counted(limit: float = math.inf) -> Iterator[Memory]:
    """Count the memory of all values that are made in this context."""
    memory = Memory(limit)
    token = _MEMORY.set(memory)
    try:
        yield memory
    finally:
        _MEMORY.reset(token)


def count_mean(mean: Any) -> None:
    """Count a value that is made of others."""
    memory = _MEMORY.get()
    if memory is not None:
        memory.add(OF_A_MEAN * math.prod(mean.shape) * mean.dtype.itemsize)


def count_covariance(needed: int) -> None:
    """Count a covariance of so many bytes, before it is computed."""
    memory = _MEMORY.get()
    if memory is not None:
        memory.add(OF_A_COVARIANCE * needed)
