"""Terms of observed sites in the ELBO: expected log-likelihoods."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.objectives.data import ObservedPlates, check_rows_are_data
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.particles.undrawn import MaskedSite
from numpyro_moments.sites.latent import Site, scaled_sum
from numpyro_moments.sites.posteriors import without_wrappers


def observed_term(name: str, site: Site) -> jax.Array:
    """Return E_q[log p] of an observed site with scale and mask; its log-density at draws."""
    if "log_prob" in site:
        return scaled_sum(site["log_prob"], site)
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    return scaled_sum(log_prob, site)


def check_masked_rows(sites: Mapping[str, Site], latent: Collection[str]) -> None:
    """Raise for masks of rows that are no data; see :func:`.masked_rows.check_rows_are_data`."""
    values = {name: site["value"] for name, site in sites.items() if name in latent}
    drawn = {name: getattr(site.get("undrawn"), "site", None) for name, site in sites.items()}
    weights = {
        name: weight
        for name, value in values.items()
        for weight in (value, drawn[name])
        if isinstance(weight, MaskedWeight | MaskedSite)
    }
    if not weights:
        return
    data = {
        name: ObservedPlates(site["plates"], jnp.shape(site["value"]))
        for name, site in sites.items()
        if name not in latent and site["type"] == "sample" and not _is_factor(site["fn"])
    }
    check_rows_are_data(weights, data)


def _is_factor(fn: dist.Distribution) -> bool:
    return isinstance(without_wrappers(fn), dist.Unit)
