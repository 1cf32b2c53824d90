"""Errors and warnings of moment propagation, with cause, latent sites and remedy."""

from __future__ import annotations

from collections.abc import Iterable

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
