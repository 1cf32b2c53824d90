"""Masked sites of a guide by dropout: their value, and their terms of the ELBO."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost

from guides.families import mc_dropout
from guides.families.dropout_texts import masked_site_not_used, no_dropout_prior
from guides.pyro.dropped_weight import DroppedWeight
from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.dropout.masked_weight import MaskedWeight, SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import variance_ratio
from moment_calculus.operations.elementwise.arithmetic import site_value
from moment_calculus.rulebooks import propagation_of
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.likelihoods import evaluate
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.sites.transformed import WRAPPERS

_NORMAL = torch.distributions.Normal


def dropout_posterior(fn: Any) -> DroppedWeight | None:
    """Return the posterior of a masked site without wrappers; None for any other site."""
    inner = unwrapped(fn, (*WRAPPERS, MaskedDistribution))[0]
    return inner if isinstance(inner, DroppedWeight) else None


def dropout_value(name: str, fn: DroppedWeight, propagation: Propagation) -> MaskedWeight:
    """Return the value of a masked site, before it is contracted with inputs."""
    per_weight = fn.design.noise == "dropconnect"
    is_switch = fn.design.noise == "bernoulli"
    mask = SiteMask(name, variance_ratio(fn.p), fn.design.axis, per_weight, is_switch)
    return masked_weight(fn.loc, mask, propagation)


def without_uses(value: Any) -> Any:
    """Return a masked value without its uses, for another run; any other value unchanged."""
    if isinstance(value, MomentTensor) and isinstance(value.value, MaskedWeight):
        return MomentTensor(value.value.unused())
    return value


def dropout_terms(name: str, site: Any, fn: DroppedWeight) -> tuple[torch.Tensor, Any]:
    """Return E_q[log p] of a masked site, up to a constant, and the entropy of masks, [*batch]."""
    value = site["value"].value if isinstance(site["value"], MomentTensor) else None
    if isinstance(value, MaskedWeight) and not value.mask.uses:
        raise masked_site_not_used(name)
    log_prior = _log_prior(name, site["fn"], fn)
    if fn.design.temperature is None:
        return log_prior, None  # with fixed probabilities the entropy is constant
    each = mc_dropout.masks_per_weight(tuple(fn.loc.shape), fn.design.axis, fn.design.noise)
    entropy = mc_dropout.mask_entropy(fn.p) * (each * fn.event_shape.numel())
    return log_prior, entropy.expand(fn.batch_shape)


def _log_prior(name: str, prior: Any, fn: DroppedWeight) -> torch.Tensor:
    if isinstance(prior, torch.distributions.Independent):
        inner = _log_prior(name, prior.base_dist, fn)
        return sum_rightmost(inner, prior.reinterpreted_batch_ndims)
    if isinstance(prior, MaskedDistribution):
        return scale_and_mask(_log_prior(name, prior.base_dist, fn), mask=prior._mask)
    if isinstance(prior, ExpandedDistribution):
        return _log_prior(name, prior.base_dist, fn).expand(prior.batch_shape)
    if isinstance(prior, _NORMAL) and not (fn.design.learnt_prior or has_moments(prior)):
        return -mc_dropout.normal_divergence(fn.loc, fn.p, prior.loc, prior.scale * prior.scale)
    if isinstance(prior, EmpiricalBayesNormal):
        return prior.expected_log_prob(fn.loc, fn.variance)
    if prior.event_dim:
        raise no_dropout_prior(name, prior)
    if fn.design.noise == "gaussian":
        marginal = site_value(
            name, fn.loc, fn.variance, propagation_of("diagonal", "exact"), event_dim=0
        )
        return evaluate(name, prior, MomentTensor(marginal))
    points: Any = mc_dropout.mask_values(fn.loc, fn.p)
    return sum(weight * evaluate(name, prior, value) for weight, value in points)
