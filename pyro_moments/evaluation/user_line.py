"""Find the user's line that called an operation; used on failure only."""

from __future__ import annotations

import sys
from types import FrameType

import torch

from moment_calculus.errors import is_library


def user_line() -> str:
    """Return the user's innermost file and line, and the module that runs there."""
    frames = list(_frames())
    user = next((frame for frame in frames if not is_library(frame)), None)
    line = f"{user.f_code.co_filename}:{user.f_lineno}" if user else "unknown"
    module = next((name for frame in frames if (name := _module_name(frame))), None)
    return f"{line} in {module}" if module else line


def _frames():
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module_name(frame: FrameType) -> str | None:
    owner = frame.f_locals.get("self")
    if not isinstance(owner, torch.nn.Module) or frame.f_code.co_name != "forward":
        return None
    label = getattr(owner, "_pyro_name", "")
    return f"{type(owner).__name__} {label}".strip() + ".forward"
