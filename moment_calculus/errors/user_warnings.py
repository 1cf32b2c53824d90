"""Warn with the user's line, so that Python shows each warning once per line."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

from moment_calculus.errors.user_line import is_library

# Gives file and line of a user's program that was traced earlier and is not on the stack.
_line: ContextVar[Callable[[], tuple[str, int] | None] | None] = ContextVar("line", default=None)
_shown: dict[Any, Any] = {}


@contextlib.contextmanager
def at_line(line: Callable[[], tuple[str, int] | None]) -> Iterator[None]:
    """Give warnings in this context the line that ``line()`` returns, if it returns one."""
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line of the call stack that belongs to no library."""
    line = _line.get()
    place = line() if line is not None else None
    if place is None:
        warnings.warn(message, category, stacklevel=_user_level())
    else:
        warnings.warn_explicit(message, category, *place, registry=_shown)


def _user_level() -> int:
    """Return the stack level of the user's frame, counted from :func:`warn_user`."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        if not is_library(frame):
            return level
        frame, level = frame.f_back, level + 1
    return 2


def called_by(module: str) -> bool:
    """Return whether a module is on the call stack."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != module:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None
