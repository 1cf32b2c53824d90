"""Warnings that point to the user's line, so that Python shows each of them once per line."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

from moment_calculus.refusals.places import is_library

# File and line of the user's program where it is not on the stack: it was traced before.
_line: ContextVar[Callable[[], tuple[str, int] | None] | None] = ContextVar("line", default=None)
_shown: dict[Any, Any] = {}


@contextlib.contextmanager
def at_line(line: Callable[[], tuple[str, int] | None]) -> Iterator[None]:
    """Let warnings point to a line of a program that was traced before.

    Args:
        line: called when there is something to warn of; the file and the line, or None.
    """
    token = _line.set(line)
    try:
        yield
    finally:
        _line.reset(token)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line that belongs neither to this library nor to its hosts.

    Args:
        message: the text.
        category: the kind of warning.
    """
    line = _line.get()
    place = line() if line is not None else None
    if place is None:
        warnings.warn(message, category, stacklevel=_user_level())
    else:
        warnings.warn_explicit(message, category, *place, registry=_shown)


def _user_level() -> int:
    """Stack level of the user's frame, counted from :func:`warn_user`."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        if not is_library(frame):
            return level
        frame, level = frame.f_back, level + 1
    return 2


def called_by(module: str) -> bool:
    """Whether a module is among those that are calling.

    Args:
        module: its name.
    """
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != module:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None
