"""What linear response says where it refuses."""

from __future__ import annotations

from collections.abc import Iterable

from moment_calculus.refusals.errors import UnsupportedMoments


def not_gaussian(site: str) -> UnsupportedMoments:
    """A latent site that is no function of Gaussian coordinates of its own.

    Args:
        site: its name.
    """
    return UnsupportedMoments(
        f"the guide's site '{site}' is no elementwise function of a Gaussian: it has no "
        "unconstrained coordinates",
        sites=[site],
        remedy="use DVIGuide, or another guide whose sites are Gaussian on the unconstrained space",
    )


def unknown_site(name: str, sites: Iterable[str]) -> ValueError:
    """A name that is no site of the model.

    Args:
        name: what the user asked for.
        sites: of the model.
    """
    return ValueError(f"{name!r} is no site of the model; there are {', '.join(map(repr, sites))}")
