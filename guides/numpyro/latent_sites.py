"""Read the latent sites, their plates and initial locations off one run of the model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from numpyro.distributions import biject_to
from numpyro.distributions.util import periodic_repeat
from numpyro.infer.util import helpful_support_errors

from guides.families.latent_site import LatentSite
from guides.numpyro.precompiled_normal import PrecompiledNormal
from guides.numpyro.supports import is_latent, is_real
from moment_calculus.errors import UnsupportedMoments


class ModelTrace(NamedTuple):
    """One run of the model, with its latent sites at their initial values."""

    trace: dict[str, dict]

    @property
    def sites(self) -> tuple[LatentSite, ...]:
        """Return the description of every latent site."""
        return tuple(describe(site) for site in self._latent)

    def location(self, name: str) -> jax.Array:
        """Return the unconstrained initial location of a latent site."""
        return initial_location(self.trace[name], self.plate_sizes)

    @property
    def frames(self) -> dict[str, Any]:
        """Return the plates around latent sites by name."""
        return {frame.name: frame for site in self._latent for frame in site["cond_indep_stack"]}

    @property
    def plate_sizes(self) -> dict[str, int]:
        """Return the full sizes of all plates by name."""
        for site in self._latent:
            self._check_plates(site)
        inside_scan = {name: frame.size for name, frame in self.frames.items()}
        plates = {name: site for name, site in self.trace.items() if site["type"] == "plate"}
        return inside_scan | {name: site["args"][0] for name, site in plates.items()}

    def _check_plates(self, site: dict) -> None:
        """Raise UnsupportedMoments for a plate in a scan whose full size is not recorded."""
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
    """Describe a latent site of a trace; raise ValueError if it is discrete or a Delta."""
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
    """Return a site's unconstrained value, repeated to the full size of subsampled plates."""
    event_dim = describe(site).event_dim
    location = biject_to(site["fn"].support).inv(site["value"])
    for frame in site["cond_indep_stack"]:
        if plate_sizes[frame.name] != frame.size:
            location = periodic_repeat(location, plate_sizes[frame.name], frame.dim - event_dim)
    return location


def posterior(site: LatentSite, loc: jax.Array, scale: jax.Array) -> dist.Distribution:
    """Return independent Normals, transformed to the site's support."""
    return on_support(PrecompiledNormal(loc, scale).to_event(site.event_dim), site)


def on_support(base: dist.Distribution, site: LatentSite) -> dist.Distribution:
    """Transform a distribution of a site's unconstrained value to the site's support."""
    if is_real(site.support):
        return base
    return dist.TransformedDistribution(base, biject_to(site.support))
