"""Warnings that point to the user's line, so that Python shows each of them once per line."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

_SKIPPED = frozenset(
    "guides jax moment_calculus numpyro numpyro_moments pyro pyro_moments torch".split()
)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line that belongs neither to this library nor to its hosts.

    Args:
        message: the text.
        category: the kind of warning.
    """
    warnings.warn(message, category, stacklevel=_user_level())


def _user_level() -> int:
    """Stack level of the user's frame, counted from :func:`warn_user`."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package not in _SKIPPED:
            return level
        frame, level = frame.f_back, level + 1
    return 2
