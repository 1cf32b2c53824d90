"""What an observed site contributes to the ELBO: its expected log-likelihood."""

from __future__ import annotations

import jax

from moment_calculus.refusals.errors import UnsupportedMoments
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.sites.latent import Site, scaled_sum


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
