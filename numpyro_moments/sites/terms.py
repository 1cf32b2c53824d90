"""Terms of the sites in an objective: divergences of latent ones, likelihoods of observed ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions.util import scale_and_mask, sum_rightmost

from guides.families import mc_dropout
from guides.families.dropout_texts import masked_site_not_used, no_dropout_prior
from guides.numpyro.dropped_weight import DroppedWeight
from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from guides.numpyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.matrices import row_sums
from moment_calculus.numerics.private_apis import is_traced
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.elementwise.arithmetic import site_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.rules.table import is_random
from numpyro_moments.sites.posteriors import (
    WRAPPERS,
    dropout_posterior,
    entropy,
    gaussian_base,
    half_log_determinant,
    without_wrappers,
)


def dropout_terms(name: str, site: Any, fn: DroppedWeight) -> tuple[jax.Array, Any]:
    """Return E_q[log p] of a masked site up to a constant, and its entropy, both [*batch].

    The entropy is None if probabilities are fixed. UnsupportedMoments is raised if the
    model does not contract the site, or the elements of its prior are dependent.
    """
    value = site["value"]
    if isinstance(value, MaskedWeight) and not value.mask.uses:
        raise masked_site_not_used(name)
    log_prior = _dropout_prior(name, site["fn"], fn)
    if fn.design.temperature is None:
        return log_prior, None
    each = mc_dropout.masks_per_weight(jnp.shape(fn.loc), fn.design.axis, fn.design.noise)
    entropy = mc_dropout.mask_entropy(jnp.asarray(fn.p)) * (each * math.prod(fn.event_shape))
    return log_prior, jnp.broadcast_to(entropy, fn.batch_shape)


def _dropout_prior(name: str, prior: Any, fn: DroppedWeight) -> jax.Array:
    if isinstance(prior, dist.Independent):
        inner = _dropout_prior(name, prior.base_dist, fn)
        return sum_rightmost(inner, prior.reinterpreted_batch_ndims)
    if isinstance(prior, dist.MaskedDistribution):
        return jnp.where(prior._mask, _dropout_prior(name, prior.base_dist, fn), 0.0)
    if isinstance(prior, dist.ExpandedDistribution):
        return jnp.broadcast_to(_dropout_prior(name, prior.base_dist, fn), prior.batch_shape)
    if isinstance(prior, dist.Normal) and not (fn.design.learnt_prior or has_moments(prior)):
        return -mc_dropout.normal_divergence(fn.loc, fn.p, prior.loc, prior.scale**2)
    if isinstance(prior, EmpiricalBayesNormal):
        return prior.expected_log_prob(fn.loc, fn.variance)
    if prior.event_dim:
        raise no_dropout_prior(name, prior)
    if fn.design.noise == "gaussian":
        marginal = site_value(
            name, fn.loc, fn.variance, propagation_of("diagonal", "exact"), event_dim=0
        )
        return evaluate(name, prior, marginal)
    points = mc_dropout.mask_values(fn.loc, fn.p)
    return sum(weight * evaluate(name, prior, value) for weight, value in points)


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


def latent_term(name: str, site: Site, guide_site: Site) -> jax.Array:
    """Return s_model E_q[log p] + s_guide H of a latent site; −KL where the scales are equal."""
    if (dropped := dropout_posterior(guide_site["fn"])) is not None:
        return _masked_term(name, site, guide_site, dropped)
    try:
        return _term(name, site, guide_site)
    except UnsupportedMoments:
        if "undrawn" not in site:
            raise
    value = {"value": site["undrawn"].draw()}  # without a closed form: estimated by one draw
    return _term(name, {**site, **value}, {**guide_site, **value})


def _term(name: str, site: Site, guide_site: Site) -> jax.Array:
    same = _same(site["scale"], guide_site["scale"])
    if same and (divergence := _gaussian_kl(site, guide_site)) is not None:
        return -scaled_sum(divergence, site)
    log_prior = _log_prior(name, site)
    site_entropy = _entropy(name, site["value"], guide_site)
    if same:
        return scaled_sum(log_prior + site_entropy, site)
    return scaled_sum(log_prior, site) + scaled_sum(site_entropy, guide_site)


def _masked_term(name: str, site: Site, guide_site: Site, dropped: Any) -> jax.Array:
    """Return minus the divergence of a site with dropout masks, up to a constant."""
    try:
        log_prior, mask_entropy = dropout_terms(name, site, dropped)
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    term = scaled_sum(log_prior, site)
    return term if mask_entropy is None else term + scaled_sum(mask_entropy, guide_site)


def auxiliary_term(name: str, site: Site) -> jax.Array:
    """Return the scaled entropy of a site that only the guide has."""
    return scaled_sum(_entropy(name, site["value"], site), site)


def _log_prior(name: str, site: Site) -> jax.Array:
    try:
        return evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None


def _same(scale: Any, other: Any) -> bool:
    """Return whether two scales are known to be equal; traced ones are not known."""
    return scale is other or (_is_known(scale) and _is_known(other) and bool(scale == other))


def _is_known(scale: Any) -> bool:
    return scale is not None and np.ndim(scale) == 0 and not is_traced(scale)


def _gaussian_kl(site: Site, guide_site: Site) -> jax.Array | None:
    """Return the KL divergence [*batch] to a certain Normal prior; None for any other site."""
    moments, fn = site["value"], site["fn"]
    prior, transforms = gaussian_base(fn)
    if prior is None or transforms or has_moments(prior):
        return None
    chain = without_wrappers(guide_site["fn"])
    chained = isinstance(moments, Gaussian) and isinstance(chain, TridiagonalNormal)
    if not (chained or _is_leaf(moments)):
        return None
    if _is_masked(fn) or _is_masked(guide_site["fn"]):
        return None
    if isinstance(chain, dist.Delta):
        return None
    kl = divergences.gaussian_kl(moments.mean, moments.variance, prior.loc, prior.scale**2)
    if not fn.event_dim:
        return kl
    return sum_rightmost(row_sums(kl), fn.event_dim - 1) - half_log_determinant(chain)


def _is_leaf(moments: Any) -> TypeGuard[Gaussian]:
    return isinstance(moments, Gaussian) and not moments.step.inputs and not moments.has_covariance


def _is_masked(fn: Any) -> bool:
    while isinstance(fn, WRAPPERS):
        if isinstance(fn, dist.MaskedDistribution):
            return True
        fn = fn.base_dist
    return False


def _entropy(name: str, value: Any, guide_site: Site) -> jax.Array:
    """Return −E_q[log q] of a guide site, [*batch]."""
    fn = guide_site["fn"]
    if "log_prob" in guide_site:
        return -guide_site["log_prob"]
    # NumPyro's guides record a function of other sites as a Delta: the entropy is counted
    # with those sites, and the Delta holds the log-determinant.
    if isinstance(without_wrappers(fn), dist.Delta) or not is_random(value):
        return -evaluate(name, fn, value)
    return entropy(value, fn)


def observed_term(name: str, site: Site) -> jax.Array:
    """Return E_q[log p] of an observed site with scale and mask; its log-density at draws."""
    if "log_prob" in site:
        return scaled_sum(site["log_prob"], site)
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    return scaled_sum(log_prob, site)
