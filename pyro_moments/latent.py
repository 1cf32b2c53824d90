"""What a latent site contributes to the ELBO: its KL divergence, or prior and entropy apart."""

from __future__ import annotations

from typing import Any, TypeGuard

import pyro.distributions as dist
import torch
from pyro.distributions.util import scale_and_mask, sum_rightmost
from pyro.poutine import Trace

from moment_calculus import divergences
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.likelihoods import evaluate, has_moments
from pyro_moments.messenger import SAMPLE_REMEDY
from pyro_moments.tensor import MomentTensor, unwrap
from pyro_moments.transformed import expected_log_slope, gaussian_base


def scaled_sum(log_prob: torch.Tensor, site: Any) -> torch.Tensor:
    """Sum of a site's terms with its scale and mask.

    Args:
        log_prob: of the site's batch shape.
        site: node of a trace.
    """
    return scale_and_mask(log_prob, site["scale"], site["mask"]).sum()


def latent_term(name: str, site: Any, guide_trace: Trace) -> torch.Tensor:
    """s_model E_q[log p] + s_guide H of one latent site; −KL where the scales are the same.

    Args:
        name: the site.
        site: its node in the model's trace.
        guide_trace: the guide's trace.

    Raises:
        UnsupportedMoments: if the guide has no such site, or its posterior has no moments.
    """
    guide_site = _guide_site(name, guide_trace)
    same = site["mask"] is guide_site["mask"] and _same(site["scale"], guide_site["scale"])
    if same and (divergence := _gaussian_kl(site, guide_site)) is not None:
        return -scaled_sum(divergence, site)
    log_prior = evaluate(name, site["fn"], site["value"])
    entropy = _entropy(name, site["value"], guide_site)
    if same:
        return scaled_sum(log_prior + entropy, site)
    return scaled_sum(log_prior, site) + scaled_sum(entropy, guide_site)


def auxiliary_term(site: Any) -> Any:
    """Entropy of a site that only the guide has; behind a Delta it is counted there.

    Args:
        site: node of the guide's trace.
    """
    if isinstance(site["value"], MomentTensor) or isinstance(site["fn"], dist.Delta):
        return 0.0
    return -scaled_sum(site["fn"].log_prob(site["value"]), site)


def _same(scale: Any, other: Any) -> bool:
    return scale is other or (isinstance(scale, float) and scale == other)


def _guide_site(name: str, guide_trace: Trace) -> Any:
    if name not in guide_trace.nodes:
        raise UnsupportedMoments(
            f"latent site '{name}' of the model is not in the guide",
            sites=[name],
            remedy="add it to the guide, or observe it",
        )
    return guide_trace.nodes[name]


def _gaussian_kl(site: Any, guide_site: Any) -> torch.Tensor | None:
    """KL to a certain Normal prior, of the batch shape; None for any other site."""
    moments = site["value"].value if isinstance(site["value"], MomentTensor) else None
    prior, transforms = gaussian_base(site["fn"])
    if not _is_leaf(moments) or prior is None or transforms or has_moments(prior):
        return None
    if isinstance(guide_site["fn"], dist.Delta):
        return None
    prior_variance = prior.scale * prior.scale
    kl = divergences.gaussian_kl(moments.mean, moments.variance, prior.loc, prior_variance)
    return sum_rightmost(kl, site["fn"].event_dim)


def _is_leaf(moments: Any) -> TypeGuard[Gaussian]:
    return isinstance(moments, Gaussian) and not moments.parents


def _entropy(name: str, value: Any, guide_site: Any) -> torch.Tensor:
    """−E_q[log q] of a latent site, of the batch shape."""
    if not isinstance(value, MomentTensor):
        return -guide_site["fn"].log_prob(value)
    moments, fn = value.value, guide_site["fn"]
    base = moments.base if isinstance(moments, Deferred) else moments
    if not _is_leaf(base):
        raise UnsupportedMoments(
            f"the value of latent site '{name}' is not a sample of the guide, or a function of one",
            sites=moments.sites,
            remedy=SAMPLE_REMEDY,
        )
    entropy = divergences.gaussian_entropy(base.variance)
    if isinstance(fn, dist.Delta):
        return sum_rightmost(entropy, fn.event_dim) - _mean(fn.log_density)
    if isinstance(moments, Deferred):
        entropy = entropy + expected_log_slope(fn, base)
    return sum_rightmost(entropy, fn.event_dim)


def _mean(log_density: torch.Tensor) -> torch.Tensor:
    """Pyro's AutoNormal leaves the log-determinant of its transform in a Delta."""
    if isinstance(log_density, MomentTensor):
        return unwrap(log_density).gaussian().mean
    return log_density
