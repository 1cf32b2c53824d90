"""Terms of the sites in an objective: of latent ones, and likelihoods of observed ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions.util import scale_and_mask

from guides.families.posteriors import LatentTerms, at_site, sum_trailing
from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.matrices import row_sums
from moment_calculus.numerics.private_apis import is_traced
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.posteriors import POSTERIORS, without_wrappers

Site = Mapping[str, Any]


def scaled_sum(log_prob: jax.Array, site: Site) -> jax.Array:
    """Return the scaled sum of a site's terms [*batch]; raise if the scale is random."""
    if is_random(site["scale"]):
        raise UnsupportedMoments(
            "the scale of a site is random",
            sites=site["scale"].sites,
            remedy="scale sites by certain numbers, or use numpyro.factor" + OR_DRAW,
        )
    return jnp.sum(scale_and_mask(log_prob, site["scale"]))


class _InNumPyro(LatentTerms):
    def evaluate(self, name: str, fn: Any, value: Any) -> jax.Array:
        return evaluate(name, fn, value)

    def scaled_sum(self, terms: jax.Array, site: Site) -> jax.Array:
        return scaled_sum(terms, site)

    def has_same_scale(self, site: Site, other: Site) -> bool:
        one, two = site["scale"], other["scale"]
        return one is two or (_is_known(one) and _is_known(two) and bool(one == two))

    def divergence(self, site: Site, guide_site: Site) -> jax.Array | None:
        moments, event_dim = site["value"], site["fn"].event_dim
        prior = POSTERIORS.certain_prior(moments, guide_site["fn"], site["fn"])
        if prior is None:
            return None
        kl = divergences.gaussian_kl(moments.mean, moments.variance, prior.loc, prior.scale**2)
        if not event_dim:
            return kl
        chain = without_wrappers(guide_site["fn"])
        return sum_trailing(row_sums(kl), event_dim - 1) - POSTERIORS.half_log_determinant(chain)

    def entropy(self, name: str, value: Any, guide_site: Site) -> jax.Array:
        fn = guide_site["fn"]
        if "log_prob" in guide_site:
            return -guide_site["log_prob"]
        # NumPyro's guides record a function of other sites as a Delta: the entropy is
        # counted with those sites, and the Delta holds the log-determinant.
        if isinstance(without_wrappers(fn), POSTERIORS.delta) or not is_random(value):
            return -evaluate(name, fn, value)
        return POSTERIORS.entropy(value, fn)


def _is_known(scale: Any) -> bool:
    """Return whether a scale is one number with a known value, unlike a traced one."""
    return scale is not None and np.ndim(scale) == 0 and not is_traced(scale)


_TERMS = _InNumPyro(POSTERIORS)
latent_term, auxiliary_term = _TERMS.latent_term, _TERMS.auxiliary_term


def observed_term(name: str, site: Site) -> jax.Array:
    """Return E_q[log p] of an observed site with scale and mask; its log-density at draws."""
    if "log_prob" in site:
        return scaled_sum(site["log_prob"], site)
    with at_site(name, site):
        log_prob = evaluate(name, site["fn"], site["value"])
    return scaled_sum(log_prob, site)
