"""Find the line of the user's program that called or raised, past the frames of libraries."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from types import FrameType

# Packages whose frames are not the user's: this one, the frameworks, libraries for
# networks.
LIBRARIES = frozenset(
    "beartype einops equinox flax functorch guides haiku jax jaxlib jaxtyping moment_calculus "
    "numpy numpyro numpyro_moments opt_einsum pyro pyro_moments torch torchvision".split()
)


def is_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of a library, or of Python itself."""
    return _is_library(frame.f_globals.get("__name__", ""), frame.f_code.co_filename)


@functools.cache
def _is_library(module: str, file: str) -> bool:
    """Cache :func:`is_library` by names, since many calls look at the same few files."""
    return module.partition(".")[0] in LIBRARIES or is_standard(file)


@functools.cache
def is_standard(file: str) -> bool:
    """Return whether a file is Python's own or generated; notebook cells and <stdin> are not."""
    if file.startswith(("<frozen", "<@")):  # made by importlib, by beartype
        return True
    inside = file.startswith(os.path.join(sysconfig.get_path("stdlib"), ""))
    return inside and not any(part in file for part in ("site-packages", "dist-packages"))


def calling_line() -> str:
    """Return file and line of the user's innermost frame; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def raising_line(error: BaseException) -> str:
    """Return file and line of the user's innermost frame where an error began, or ""."""
    while error.__cause__ is not None:  # back to the error that was raised first
        error = error.__cause__
    found, step = "", error.__traceback__
    while step is not None:
        if not is_library(step.tb_frame):
            found = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}"
        step = step.tb_next
    return found
