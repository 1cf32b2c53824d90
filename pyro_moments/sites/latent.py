"""Terms of latent sites in the ELBO: KL divergences, or prior and entropy separately."""

from __future__ import annotations

from typing import Any, TypeGuard

import pyro.distributions as dist
import torch
from pyro.distributions.util import scale_and_mask, sum_rightmost
from pyro.poutine import Trace

from guides.pyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.hosts.wording import not_in_guide
from moment_calculus.values import Gaussian
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import evaluate
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.sites.divergence import Divergence
from pyro_moments.sites.latent_vector import LatentVector
from pyro_moments.sites.masked import dropout_posterior, dropout_terms
from pyro_moments.sites.posteriors import entropy, half_log_determinant, without_wrappers
from pyro_moments.sites.transformed import gaussian_base


def scaled_sum(log_prob: torch.Tensor, site: Any) -> torch.Tensor:
    """Return the sum of the terms [*batch] of a site, with its scale and mask."""
    terms = scale_and_mask(log_prob, site["scale"], site["mask"])
    return terms.sum() if terms.dim() else terms


def latent_term(name: str, site: Any, guide_trace: Trace) -> torch.Tensor:
    """Return s_model E_q[log p] + s_guide H of a latent site; −KL where the scales are equal."""
    guide_site = _guide_site(name, guide_trace)
    if (dropped := dropout_posterior(guide_site["fn"])) is not None:
        return _masked_term(name, site, guide_site, dropped)
    try:
        return _term(name, site, guide_site)
    except UnsupportedMoments:
        if site.get("undrawn") is None:
            raise
    value = {"value": site["undrawn"].draw()}  # without a closed form: estimated by one draw
    return _term(name, {**site, **value}, {**guide_site, **value})


def divergence_of(name: str, site: Any, guide_trace: Trace) -> Divergence | None:
    """Return a latent site's divergence (minus its term), if it has no scale or mask; else None."""
    guide_site: Any = guide_trace.nodes.get(name)
    if guide_site is None or dropout_posterior(guide_site["fn"]) is not None:
        return None
    sites = site, guide_site
    plain = all(s["mask"] is None and _is_one(s["scale"]) for s in sites)
    chained = isinstance(without_wrappers(guide_site["fn"]), TridiagonalNormal)
    return _divergence(*sites) if plain and not chained else None


def _term(name: str, site: Any, guide_site: Any) -> torch.Tensor:
    same = site["mask"] is guide_site["mask"] and _same(site["scale"], guide_site["scale"])
    if same and (divergence := _gaussian_kl(site, guide_site)) is not None:
        return -scaled_sum(divergence, site)
    try:
        log_prior = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    site_entropy = _entropy(site["value"], guide_site)
    if same:
        return scaled_sum(log_prior + site_entropy, site)
    return scaled_sum(log_prior, site) + scaled_sum(site_entropy, guide_site)


def _masked_term(name: str, site: Any, guide_site: Any, dropped: Any) -> torch.Tensor:
    """Return minus the divergence of a site with dropout masks, up to a constant."""
    try:
        log_prior, mask_entropy = dropout_terms(name, site, dropped)
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    term = scaled_sum(log_prior, site)
    return term if mask_entropy is None else term + scaled_sum(mask_entropy, guide_site)


def auxiliary_term(site: Any) -> torch.Tensor:
    """Return the scaled entropy of a site that only the guide has."""
    return scaled_sum(_entropy(site["value"], site), site)


def _same(scale: Any, other: Any) -> bool:
    return scale is other or (isinstance(scale, float) and scale == other)


def _is_one(scale: Any) -> bool:
    return isinstance(scale, int | float) and scale == 1


def _guide_site(name: str, guide_trace: Trace) -> Any:
    if name not in guide_trace.nodes:
        raise not_in_guide(name)
    return guide_trace.nodes[name]


def _gaussian_kl(site: Any, guide_site: Any) -> torch.Tensor | None:
    """Return the KL divergence [*batch] to a certain Normal prior; None for any other site."""
    parts = _divergence(site, guide_site)
    if parts is None:
        return None
    divergence = sum_rightmost(parts.of_components(), site["fn"].event_dim)
    chain = without_wrappers(guide_site["fn"])
    chained = isinstance(chain, TridiagonalNormal)
    return divergence - half_log_determinant(chain) if chained else divergence


def _divergence(site: Any, guide_site: Any) -> Divergence | None:
    """Return the divergence of the components to a certain Normal prior; None for other sites."""
    moments: Any = site["value"].value if isinstance(site["value"], MomentTensor) else None
    prior, transforms = gaussian_base(site["fn"])
    if prior is None or transforms or has_moments(prior):
        return None
    chain = without_wrappers(guide_site["fn"])
    chained = isinstance(moments, Gaussian) and isinstance(chain, TridiagonalNormal)
    if not (chained or _is_leaf(moments)) or isinstance(guide_site["fn"], dist.Delta):
        return None
    return Divergence(moments.mean, moments.variance, prior.loc, prior.scale)


def _is_leaf(moments: Any) -> TypeGuard[Gaussian]:
    return isinstance(moments, Gaussian) and not moments.step.inputs and not moments.has_covariance


def _entropy(value: Any, guide_site: Any) -> torch.Tensor:
    """Return −E_q[log q] of a guide site, [*batch]."""
    fn = guide_site["fn"]
    if isinstance(value, LatentVector):
        return fn.entropy()
    if not isinstance(value, MomentTensor):
        return -fn.log_prob(value)
    if isinstance(fn, dist.Delta):
        # Pyro's guides record a function of other sites as a Delta: the entropy is
        # counted with those sites, and the Delta holds the log-determinant.
        return -_mean(fn.log_density)
    moments: Any = value.value
    return entropy(moments, fn)


def _mean(log_density: torch.Tensor) -> torch.Tensor:
    """Return the log-determinant of a transform, at its mean if it is random."""
    if isinstance(log_density, MomentTensor):
        return unwrap(log_density).gaussian().mean
    return log_density
