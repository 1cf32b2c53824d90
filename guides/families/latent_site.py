"""Describe a latent site for a guide, and the error for a support that is not fixed."""

from __future__ import annotations

from typing import Any, NamedTuple

from moment_calculus.errors import UnsupportedMoments


class LatentSite(NamedTuple):
    """What a guide needs to know of a latent site after one run of the model."""

    name: str
    event_dim: int  # number of event axes of its unconstrained value
    support: Any  # constraint object of the framework
    plates: tuple[str, ...]  # names of the plates around it


def varying_support_error(name: str, origin: str, *, framework: str) -> UnsupportedMoments:
    """Return the error for a latent site whose support depends on ``origin``."""
    return UnsupportedMoments(
        f"site '{name}': its support depends on {origin}, but the guide's transform of a Normal to "
        "the support is fixed",
        sites=[name],
        remedy="sample a site with a fixed support and move it by arithmetic, for example "
        f"upper * {framework}.sample('u', dist.Uniform(0, 1))",
    )
