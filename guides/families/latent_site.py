"""What a guide knows of a latent site, and what it cannot serve."""

from __future__ import annotations

from typing import Any, NamedTuple

from moment_calculus.refusals.errors import UnsupportedMoments


class LatentSite(NamedTuple):
    """What the guide has to know about a latent site once the model has been seen.

    Args:
        name: the site.
        event_dim: number of trailing axes of its unconstrained value that make up one draw.
        support: constraint of the host.
        plates: names of the plates that it is in.
    """

    name: str
    event_dim: int
    support: Any
    plates: tuple[str, ...]


def moving_support(name: str, origin: str, *, host: str) -> UnsupportedMoments:
    """The support of a latent site that depends on something else.

    Args:
        name: the site.
        origin: what it depends on.
        host: the module of the probabilistic language, as users write it.
    """
    return UnsupportedMoments(
        f"site '{name}': its support depends on {origin}, but the guide's transform of a Normal to "
        "the support is fixed",
        sites=[name],
        remedy="sample a site with a fixed support and move it by arithmetic, for example "
        f"upper * {host}.sample('u', dist.Uniform(0, 1))",
    )
