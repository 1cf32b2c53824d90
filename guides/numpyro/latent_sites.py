"""What a guide learns of the model's latent sites from one run of the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.util import periodic_repeat
from numpyro.infer.util import helpful_support_errors

from guides.families.latent_site import LatentSite
from guides.numpyro.started_normal import StartedNormal
from guides.numpyro.supports import is_latent, is_real
from moment_calculus.refusals.errors import UnsupportedMoments


class Run(NamedTuple):
    """One run of the model, its latent sites at their initial values."""

    trace: dict[str, dict]

    @property
    def sites(self) -> tuple[LatentSite, ...]:
        """The latent sites."""
        return tuple(describe(site) for site in self._latent)

    def location(self, name: str) -> jax.Array:
        """Unconstrained initial location of a latent site."""
        return initial_location(self.trace[name], self.plate_sizes)

    @property
    def frames(self) -> dict[str, Any]:
        """The plates around latent sites by name."""
        return {frame.name: frame for site in self._latent for frame in site["cond_indep_stack"]}

    @property
    def plate_sizes(self) -> dict[str, int]:
        """Full sizes of all plates by name."""
        for site in self._latent:
            self._check_plates(site)
        inside_scan = {name: frame.size for name, frame in self.frames.items()}
        plates = {name: site for name, site in self.trace.items() if site["type"] == "plate"}
        return inside_scan | {name: site["args"][0] for name, site in plates.items()}

    def _check_plates(self, site: dict) -> None:
        """Refuse to guess the full size of a plate that NumPyro's scan does not record."""
        missing = [frame.name for frame in site["cond_indep_stack"] if frame.name not in self.trace]
        if missing and site["scale"] not in (None, 1):
            raise UnsupportedMoments(
                f"site '{site['name']}' inside scan is scaled by {site['scale']}, but NumPyro does "
                f"not record whether its plate '{missing[0]}' is subsampled",
                sites=[site["name"]],
                remedy="subsample outside of scan, and scale the whole scan with "
                "numpyro.handlers.scale",
            )

    @property
    def _latent(self) -> list[dict]:
        return [site for site in self.trace.values() if is_latent(site)]


def describe(site: dict) -> LatentSite:
    """What the guide has to know about a latent site.

    Args:
        site: latent site of a trace.

    Raises:
        ValueError: if the site is discrete, or if its distribution is a Delta.
    """
    fn = site["fn"]
    if isinstance(fn, dist.Delta):
        raise ValueError(
            f"Sample site '{site['name']}' has a delta distribution; use `numpyro.deterministic` "
            "to add this value to the trace instead."
        )
    with helpful_support_errors(site):
        transform = biject_to(fn.support)
    shape = jnp.shape(site["value"])
    event_dim = fn.event_dim + len(transform.inverse_shape(shape)) - len(shape)
    plates = tuple(frame.name for frame in site["cond_indep_stack"])
    return LatentSite(site["name"], event_dim, fn.support, plates)


def initial_location(site: dict, plate_sizes: dict[str, int]) -> jax.Array:
    """Unconstrained value of a latent site, repeated to the full size of subsampled plates.

    Args:
        site: latent site of a trace.
        plate_sizes: full size of every plate by name.

    Returns:
        Array of the site's unconstrained shape.
    """
    event_dim = describe(site).event_dim
    location = biject_to(site["fn"].support).inv(site["value"])
    for frame in site["cond_indep_stack"]:
        if plate_sizes[frame.name] != frame.size:
            location = periodic_repeat(location, plate_sizes[frame.name], frame.dim - event_dim)
    return location


def posterior(site: LatentSite, loc: jax.Array, scale: jax.Array) -> dist.Distribution:
    """Independent Normals, transformed to the site's support.

    Args:
        site: the latent site.
        loc: locations, of the site's unconstrained shape.
        scale: standard deviations, of the same shape.
    """
    return on_support(StartedNormal(loc, scale).to_event(site.event_dim), site)


def on_support(base: dist.Distribution, site: LatentSite) -> dist.Distribution:
    """A distribution on all real arrays, transformed to a site's support.

    Args:
        base: of the site's unconstrained value.
        site: the latent site.
    """
    if is_real(site.support):
        return base
    return dist.TransformedDistribution(base, biject_to(site.support))
