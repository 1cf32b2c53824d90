"""What the calculus raises: every refusal names its cause, the latent sites and a remedy."""

from __future__ import annotations

from collections.abc import Iterable

# What helps wherever a random value meets what has no rule: drawn sites are certain numbers.
OR_DRAW = ", or draw the sites by naming them in sample_sites="
OR_DRAW_ALL = ", or draw all sites: propagation='sampled'"

OR_DRAW_ONE_MASK = (
    ", or, if no rows are mixed, draw one mask for all of them: name the site in sample_sites with "
    "propagation='analytic'"
)


class UnsupportedMoments(TypeError):
    """Moments that have no rule, with the cause, the latent sites involved and the remedy.

    It derives from ``TypeError`` because Pyro rebuilds ``ValueError`` and ``RuntimeError``
    from their message alone, which would lose the fields.

    Args:
        cause: what is not supported, and why.
        sites: names of the latent sites that the operands depend on.
        remedy: what the user can do about it; where sites may be drawn by name, all of them may be
            drawn as well, which is added here.
        operation: the operation as the user called it; added by the front end.
        location: the user's file and line, and the enclosing module; added by the front end.
        feeds: names of the sites that the result leads to; added by front ends that know.
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
        """Return the same refusal with what is known of its place filled in where it is missing.

        Args:
            operation: as of the class.
            location: likewise.
            sites: likewise.
            feeds: likewise.
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
        """Return the same refusal with another remedy.

        Args:
            remedy: what helps where it arose.
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
        """Return the same refusal with the observed site that led to it, if it has none yet.

        Args:
            name: the site.
            location: the user's line of the site.
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
    """Two dependent values were added and their covariance is not known: it was taken as zero."""


class CovarianceDroppedWarning(UserWarning):
    """A reshape mixed the feature axis of a full covariance: only the variances were kept."""


class LossByDrawsWarning(UserWarning):
    """A trained loss is another one by draws: moments on the way are approximated too coarsely."""


class CaptureWarning(UserWarning):
    """A program could not be captured or compiled: it runs the slower way, with the same result."""


class ApproximationWarning(UserWarning):
    """A rule is known to be far off: where training leads, or of what it is applied to."""
