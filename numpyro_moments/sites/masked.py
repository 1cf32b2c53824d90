"""Masked sites of a guide by dropout: their value, and their terms of the ELBO."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions.util import sum_rightmost

from guides.families import mc_dropout
from guides.families.dropout_texts import masked_site_not_used, no_dropout_prior
from guides.numpyro.dropped_weight import DroppedWeight
from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.dropout.masked_weight import MaskedWeight, SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import variance_ratio
from moment_calculus.operations.elementwise.arithmetic import site_value
from moment_calculus.rulebooks import propagation_of
from numpyro_moments.likelihoods import evaluate
from numpyro_moments.likelihoods.structure import has_moments
from numpyro_moments.sites.transformed import WRAPPERS


def dropout_posterior(fn: Any) -> DroppedWeight | None:
    """Return the posterior of a masked site without wrappers; None for any other site."""
    inner = unwrapped(fn, WRAPPERS)[0]
    return inner if isinstance(inner, DroppedWeight) else None


def dropout_value(name: str, fn: DroppedWeight, propagation: Propagation) -> MaskedWeight:
    """Return the value of a masked site, before it is contracted with inputs."""
    per_weight = fn.design.noise == "dropconnect"
    is_switch = fn.design.noise == "bernoulli"
    mask = SiteMask(name, variance_ratio(fn.p), fn.design.axis, per_weight, is_switch)
    return masked_weight(fn.loc, mask, propagation)


def dropout_terms(name: str, site: Any, fn: DroppedWeight) -> tuple[jax.Array, Any]:
    """Return E_q[log p] of a masked site up to a constant, and its entropy, both [*batch].

    The entropy is None if probabilities are fixed. UnsupportedMoments is raised if the
    model does not contract the site, or the elements of its prior are dependent.
    """
    value = site["value"]
    if isinstance(value, MaskedWeight) and not value.mask.uses:
        raise masked_site_not_used(name)
    log_prior = _log_prior(name, site["fn"], fn)
    if fn.design.temperature is None:
        return log_prior, None
    each = mc_dropout.masks_per_weight(jnp.shape(fn.loc), fn.design.axis, fn.design.noise)
    entropy = mc_dropout.mask_entropy(jnp.asarray(fn.p)) * (each * math.prod(fn.event_shape))
    return log_prior, jnp.broadcast_to(entropy, fn.batch_shape)


def _log_prior(name: str, prior: Any, fn: DroppedWeight) -> jax.Array:
    if isinstance(prior, dist.Independent):
        inner = _log_prior(name, prior.base_dist, fn)
        return sum_rightmost(inner, prior.reinterpreted_batch_ndims)
    if isinstance(prior, dist.MaskedDistribution):
        return jnp.where(prior._mask, _log_prior(name, prior.base_dist, fn), 0.0)
    if isinstance(prior, dist.ExpandedDistribution):
        return jnp.broadcast_to(_log_prior(name, prior.base_dist, fn), prior.batch_shape)
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
