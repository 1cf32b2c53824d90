"""Errors and warnings of the library, with cause, sites, remedy and the user's line."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import sysconfig
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from types import FrameType
from typing import Any

# Endings of remedies: drawn sites are plain numbers, so that every operation supports
# them.
OR_DRAW = ", or draw the sites by naming them in sample_sites="
OR_DRAW_ALL = ", or draw all sites: propagation='sampled'"
HOLD_DRAWS = (
    "integrate what has no rule by draws that are held, fit(..., unsupported='held draws') or "
    "DeterministicELBO(held_draws=512); or "
)

OR_DRAW_ONE_MASK = (
    ", or, if no rows are mixed, draw one mask for all of them: name the site in sample_sites with "
    "propagation='analytic'"
)

MEAN_FIELD_GUIDES = "use DVIGuide, AutoNormal or AutoDiagonalNormal"
BY_DRAWING = "naming them in sample_sites="
_SAMPLE_REMEDY = "name it in sample_sites= to draw it by reparameterisation"


def optional_package(name: str, use: str, extra: str = "diagnostics") -> Any:
    """Import a package; raise ImportError with the install command if it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'{use}: pip install "pyro-moments[{extra}]"') from error


def sites_of(*operands: Any) -> frozenset[str]:
    """Return the sites on which any of some operands depends."""
    return frozenset().union(*[getattr(operand, "sites", ()) for operand in operands])


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
        self.sites = tuple(sorted(sites))
        if self.sites and not any(name.startswith("input ") for name in self.sites):
            remedy = remedy.replace(BY_DRAWING, f"sample_sites={[*self.sites]}")
        self.cause, self.remedy = cause, remedy + OR_DRAW_ALL if by_name else remedy
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
        return type(self)(
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
        return type(self)(
            self.cause,
            sites=self.sites,
            remedy=remedy,
            operation=self.operation,
            location=self.location,
            feeds=self.feeds,
        )

    def at_site(self, name: str, location: str = "") -> UnsupportedMoments:
        """Return the same error with its observed site, unless the cause names it.

        Args:
            name: name of the site.
            location: the user's line of the site; used if the error has no location.
        """
        named = f"'{name}'" in self.cause
        return type(self)(
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
        if self.remedy and not any(text for _, text in details[:-1]):
            return f"{headline}; remedy: {self.remedy}"
        return "\n".join([headline, *(f"  {name}: {text}" for name, text in details if text)])


class UnknownNumbers(UnsupportedMoments):
    """A rule looks at numbers that are not known while a program is traced."""


class DependenceWarning(UserWarning):
    """Two dependent values were added, and their unknown covariance was taken as zero."""


class CovarianceDroppedWarning(UserWarning):
    """A reshape mixed the feature axis of a full covariance: only variances are kept."""


class LossByDrawsWarning(UserWarning):
    """Draws contradict a trained loss, whose moments are too approximate, or cannot confirm it."""


class CaptureWarning(UserWarning):
    """A program could not be captured or compiled: it runs more slowly, with the same result."""


class ApproximationWarning(UserWarning):
    """A rule is known to be inaccurate for its arguments, or where training moves them."""


# ---------------------------------------------------------------------------------------------
# The user's line: the one that called or raised, past the frames of libraries

# What the library is imported as; every list of libraries takes the names from here.
OWN_PACKAGES = frozenset(
    "moment_calculus moment_guides moment_inference numpyro_moments pyro_moments".split()
)
# Packages whose frames are not the user's: this one, the frameworks, libraries for
# networks.
LIBRARIES = OWN_PACKAGES | frozenset(
    "beartype einops equinox flax functorch haiku jax jaxlib jaxtyping numpy numpyro opt_einsum "
    "pyro scipy torch torchvision".split()
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
    """Return whether a file is Python's own or generated, unlike cells of notebooks."""
    if file.startswith(("<frozen", "<@")):  # made by importlib, by beartype
        return True
    inside = file.startswith(os.path.join(sysconfig.get_path("stdlib"), ""))
    return inside and not any(part in file for part in ("site-packages", "dist-packages"))


def calling_line() -> str:
    """Return file and line of the user's innermost frame; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    # by names, which is looked up without another call: every site asks
    while frame is not None and _is_library(
        frame.f_globals.get("__name__", ""), frame.f_code.co_filename
    ):
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
    line = _traced_line()
    if line is None:
        warnings.warn(message, category, stacklevel=_user_level())
    else:
        warnings.warn_explicit(message, category, *line, registry=_shown)


def current_line() -> str:
    """Return file and line of the user's program, also if it was traced earlier."""
    line = _traced_line()
    return calling_line() if line is None else f"{line[0]}:{line[1]}"


def _traced_line() -> tuple[str, int] | None:
    """Return file and line of a program that was traced earlier, None if there is none."""
    line = _line.get()
    return None if line is None else line()


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


# Errors about latent sites, their posteriors and draws. The argument ``framework`` is the name as
# users write it: "Pyro" or "NumPyro".
def dependent_posterior(name: str, parameter: str, sites: Collection[str]) -> UnsupportedMoments:
    """Return the error for a guide site whose ``parameter`` depends on other latent sites."""
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has a {parameter} that depends on other latent sites "
        f"({', '.join(others)}): the guide is neither mean-field nor linear and Gaussian; if the "
        f"model observes '{name}', its observations are missing: pass y",
        sites=[name, *others],
        remedy="make the scales of guide sites certain and their locations certain or linear in "
        f"other sites, or draw the sites by {BY_DRAWING}",
    )


def ignored_correlations(name: str, posterior: Any) -> UnsupportedMoments:
    """Return the error for a multivariate Normal where only variances are propagated."""
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(posterior).__name__} posterior: covariance='diagonal' "
        "would ignore its correlations",
        sites=[name],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def ignored_dependence(name: str, sites: Collection[str]) -> UnsupportedMoments:
    """Return the error for components with a shared random location in diagonal mode."""
    others = sorted(sites)
    return UnsupportedMoments(
        f"guide site '{name}' has components that depend on each other through its location (on "
        f"{', '.join(others)}): covariance='diagonal' would ignore its correlations",
        sites=[name, *others],
        remedy=f"use covariance='full', or {MEAN_FIELD_GUIDES}",
    )


def random_covariance(sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for a random covariance matrix, or Cholesky factor of one."""
    return UnsupportedMoments(
        "a covariance matrix or its Cholesky factor is random: its inverse and determinant have no "
        "analytic moments (but those of scale_tril=scales[..., None] * L of a site L with an "
        "LKJCholesky prior)",
        sites=sites,
        remedy=f"draw the sites of the covariance by {BY_DRAWING}",
        operation="a multivariate distribution",
    )


def discrete_site(name: str, posterior: Any, *, framework: str) -> UnsupportedMoments:
    """Return the error for a discrete latent site."""
    return UnsupportedMoments(
        f"latent site '{name}' is discrete ({type(posterior).__name__}): it has no "
        "reparameterised samples and no Gaussian moments",
        sites=[name],
        remedy=discrete_remedy(framework),
    )


def no_posterior_moments(name: str, posterior: Any, remedy: str = "") -> UnsupportedMoments:
    """Return the error for a posterior that is no elementwise transform of a Gaussian."""
    if mixing := [part for part in getattr(posterior, "transforms", ()) if part.domain.event_dim]:
        return UnsupportedMoments(
            f"the components of guide site '{name}' are mixed by its {type(mixing[0]).__name__}: "
            "they have no analytic moments",
            sites=[name],
            remedy=remedy or f"draw it by reparameterisation: sample_sites=['{name}']",
        )
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(posterior).__name__} posterior; analytic moments need "
        "independent Normal components, elementwise transforms of them, or a multivariate Normal",
        sites=[name],
        remedy=remedy or _SAMPLE_REMEDY,
    )


def not_reparameterised(
    name: str, posterior: Any, *, framework: str, by_name: bool = True
) -> UnsupportedMoments:
    """Return the error for a site to be drawn that has no reparameterised samples."""
    if not by_name and posterior.support.is_discrete:
        return discrete_site(name, posterior, framework=framework)
    site = f"site '{name}' of sample_sites" if by_name else f"latent site '{name}'"
    return UnsupportedMoments(
        f"{site} cannot be drawn by reparameterisation: "
        f"{type(posterior).__name__} has no reparameterised samples",
        sites=[name],
        remedy=discrete_remedy(framework),
    )


def point_without_density(name: str) -> UnsupportedMoments:
    """Return the error for a point estimate where the objective needs a density."""
    return UnsupportedMoments(
        f"site '{name}' of the guide is a point estimate (a Delta, as of AutoDelta): it has no "
        "density, and there is no ratio of densities",
        sites=[name],
        remedy="give it a distribution in the guide (DVIGuide, AutoNormal), make it a param of the "
        "model, or use DeterministicELBO(), or BBAlphaELBO() with its default energy",
    )


def not_in_guide(name: str) -> UnsupportedMoments:
    """Return the error for a latent site of the model that is not in the guide."""
    return UnsupportedMoments(
        f"latent site '{name}' of the model is not in the guide: observe it (pass y, the argument "
        "that the model gives to obs=), or pass the model that the guide was trained with",
        sites=[name],
        remedy="add it to the guide, or observe it",
    )


def check_same_model(latent: Collection[str], model: Collection[str]) -> None:
    """Raise UnsupportedMoments if none of a guide's latent sites is in the model."""
    if latent and not {*latent} & {*model}:
        raise UnsupportedMoments(
            f"the guide is of another model: its latent sites are {', '.join(sorted(latent))}, and "
            f"the model has {', '.join(sorted(model)) or 'none'}: pass the model that it was "
            "trained with",
            sites=latent,
        )


def randomness_outside_sites(
    operation: str, location: str, *, framework: str
) -> UnsupportedMoments:
    """Return the error for a model that draws random numbers outside its sites."""
    sample = f"{framework.lower()}.sample"
    return UnsupportedMoments(
        "the model draws random numbers that belong to no site: its ELBO and its predictions would "
        "be random, and nothing would say so",
        remedy="switch dropout and the like to evaluation (.eval(), deterministic=True), pass what "
        f"is random as an argument, or draw it by {sample} and name it in sample_sites=",
        operation=operation,
        location=location,
    )


def randomness_in_function(operation: str, location: str, remedy: str) -> UnsupportedMoments:
    """Return the error for random numbers in a function of moments."""
    return UnsupportedMoments(
        "the function draws random numbers: the moments would be random, and nothing would say so",
        remedy=remedy,
        operation=operation,
        location=location,
    )


def unknown_sample_sites(unknown: Iterable[str], latent: list[str]) -> UnsupportedMoments:
    """Return the error for names in ``sample_sites`` that are no latent sites of the guide."""
    return UnsupportedMoments(
        f"sample_sites names {', '.join(map(repr, sorted(unknown)))}, not a latent site of the "
        f"guide; its latent sites are {', '.join(map(repr, latent)) or 'none'}",
        sites=latent,
        remedy="name sites as the model does",
    )


def discrete_remedy(framework: str) -> str:
    """Return what to do about a discrete latent site."""
    return (
        "marginalise it in the model, by MixtureSameFamily where it is the class of each "
        "observation, else by a factor of the logsumexp of the terms of its values; or use "
        f"{framework}'s "
        "TraceEnum_ELBO; hide it from an automatic guide only if the model enumerates it; hidden "
        "zeros and ones have moments without a site, by "
        f"{framework.lower()}_moments.units.bernoulli_logistic(logits)"
    )
