"""Errors and warnings of the library, with cause, latent sites, remedy and the user's line."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

# Endings of remedies: drawn sites are plain numbers, so that every operation supports
# them.
OR_DRAW = ", or draw the sites by naming them in sample_sites="
OR_DRAW_ALL = ", or draw all sites: propagation='sampled'"

OR_DRAW_ONE_MASK = (
    ", or, if no rows are mixed, draw one mask for all of them: name the site in sample_sites with "
    "propagation='analytic'"
)


class UnsupportedMoments(TypeError):
    """No rule gives the moments; the message has cause, latent sites and remedy.

    It derives from ``TypeError`` because Pyro rebuilds ``ValueError`` and
    ``RuntimeError`` from their message alone, which would lose the fields.

    Args:
        cause: what is not supported, and why.
        sites: names of the latent sites that the operands depend on.
        remedy: what the user can do about it. If it suggests to draw sites by
            ``sample_sites=``, the advice to draw all of them is appended.
        operation: the operation as the user called it; added later by the framework's
            code.
        location: the user's file and line, and the enclosing module; added later.
        feeds: names of the sites that the result leads to; added later if known.
    """

    def __init__(
        self,
        cause: str,
        *,
        sites: Iterable[str] = (),
        remedy: str = "",
        operation: str = "",
        location: str = "",
        feeds: Iterable[str] = (),
    ) -> None:
        by_name = "sample_sites=" in remedy and "propagation=" not in remedy
        self.cause, self.remedy = cause, remedy + OR_DRAW_ALL if by_name else remedy
        self.sites = tuple(sorted(sites))
        self.operation, self.location = operation, location
        self.feeds = tuple(feeds)
        super().__init__(self._message())

    def located(
        self, operation: str, location: str, sites: Iterable[str] = (), feeds: Iterable[str] = ()
    ) -> UnsupportedMoments:
        """Return the same error with empty fields about its place filled in.

        Args:
            operation: the operation as the user called it.
            location: the user's file and line, and the enclosing module.
            sites: names of the latent sites that the operands depend on.
            feeds: names of the sites that the result leads to.
        """
        return UnsupportedMoments(
            self.cause,
            sites=self.sites or sites,
            remedy=self.remedy,
            operation=self.operation or operation,
            location=self.location or location,
            feeds=self.feeds or feeds,
        )

    def with_remedy(self, remedy: str) -> UnsupportedMoments:
        """Return the same error with another remedy.

        Args:
            remedy: what the user can do about it.
        """
        return UnsupportedMoments(
            self.cause,
            sites=self.sites,
            remedy=remedy,
            operation=self.operation,
            location=self.location,
            feeds=self.feeds,
        )

    def at_site(self, name: str, location: str = "") -> UnsupportedMoments:
        """Return the same error with the observed site that led to it, unless the cause names it.

        Args:
            name: name of the site.
            location: the user's line of the site; used if the error has no location.
        """
        named = f"'{name}'" in self.cause
        return UnsupportedMoments(
            self.cause if named else f"site '{name}': {self.cause}",
            sites=self.sites,
            remedy=self.remedy,
            operation=self.operation,
            location=self.location or location,
            feeds=self.feeds,
        )

    def _message(self) -> str:
        headline = f"{self.operation}: {self.cause}" if self.operation else self.cause
        details = (
            ("where", self.location),
            ("latent sites", ", ".join(self.sites)),
            ("feeds sites", ", ".join(self.feeds)),
            ("remedy", self.remedy),
        )
        return "\n".join([headline, *(f"  {name}: {text}" for name, text in details if text)])


class DependenceWarning(UserWarning):
    """Two dependent values were added, and their unknown covariance was taken as zero."""


class CovarianceDroppedWarning(UserWarning):
    """A reshape mixed the feature axis of a full covariance: only variances are kept."""


class LossByDrawsWarning(UserWarning):
    """A trained loss differs from its estimate by draws: some moments are too approximate."""


class CaptureWarning(UserWarning):
    """A program could not be captured or compiled: it runs more slowly, with the same result."""


class ApproximationWarning(UserWarning):
    """A rule is known to be inaccurate for its arguments, or where training moves them."""


# ---------------------------------------------------------------------------------------------
# The user's line: the one that called or raised, past the frames of libraries

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


# ---------------------------------------------------------------------------------------------
# Warnings with the user's line, so that Python shows each once per line

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
