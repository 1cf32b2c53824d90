"""What an observed site contributes to the ELBO: its expected log-likelihood."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from moment_calculus.objectives.masked_rows import Observed, refuse_other_rows
from moment_calculus.operations.dropout.masked import MaskedWeight
from moment_calculus.refusals.errors import UnsupportedMoments
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.particles.undrawn import MaskedSite
from numpyro_moments.sites.latent import Site, scaled_sum
from numpyro_moments.sites.posteriors import without_wrappers


def observed_term(name: str, site: Site) -> jax.Array:
    """E_q[log p] of one observed site, with its scale and mask; its log-density where it is drawn.

    Args:
        name: the site.
        site: of the model's trace: a dictionary with ``fn``, ``value`` and ``scale``.

    Raises:
        UnsupportedMoments: if there is no rule, or the shapes of observations and distribution do
            not fit; the message names the site.
    """
    if "log_prob" in site:
        return scaled_sum(site["log_prob"], site)
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as refusal:
        raise refusal.at_site(name, site.get("line", "")) from None
    return scaled_sum(log_prob, site)


def refuse_masks_of_other_rows(sites: Mapping[str, Site], latent: Collection[str]) -> None:
    """Refuse masks of rows that are no data; see :func:`.masked_rows.refuse_other_rows`.

    Args:
        sites: of a trace of the model with moments or with draws, by name.
        latent: names of the latent ones.
    """
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
        name: Observed(site["plates"], jnp.shape(site["value"]))
        for name, site in sites.items()
        if name not in latent and site["type"] == "sample" and not _is_factor(site["fn"])
    }
    refuse_other_rows(weights, data)


def _is_factor(fn: dist.Distribution) -> bool:
    return isinstance(without_wrappers(fn), dist.Unit)
