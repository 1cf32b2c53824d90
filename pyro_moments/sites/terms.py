"""Terms of the sites in an objective: divergences of latent ones, likelihoods of observed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeGuard

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace
from pyro.util import check_site_shape

from guides.families import mc_dropout
from guides.families.dropout_texts import masked_site_not_used, no_dropout_prior
from guides.pyro.dropped_weight import DroppedWeight
from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from guides.pyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import UnsupportedMoments, not_in_guide
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.private_apis import is_untraced
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.elementwise.arithmetic import site_value
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values import Gaussian
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.failure_causes import refuse_infinite_data
from pyro_moments.likelihoods import evaluate
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.sites.messenger import LatentVector
from pyro_moments.sites.posteriors import (
    dropout_posterior,
    entropy,
    gaussian_base,
    half_log_determinant,
    without_wrappers,
)

SMALL = 2**12  # components, for which the call of an operation dominates its cost


class Divergence(NamedTuple):
    """A KL divergence of independent Gaussians to Normal priors that is still to be computed."""

    mean: torch.Tensor
    variance: torch.Tensor
    prior_mean: torch.Tensor  # broadcastable with the mean
    prior_scale: torch.Tensor  # standard deviations, broadcastable with the mean

    def of_components(self) -> torch.Tensor:
        """Return the divergence of each component."""
        mean, variance, prior_mean, prior_scale = self
        prior_variance = prior_scale * prior_scale
        return divergences.gaussian_kl(mean, variance, prior_mean, prior_variance)

    @property
    def batch_key(self) -> Any:
        """Return what small divergences that are computed together share; None for others."""
        # A compiler fuses a traced program better without the copies that ``summed``
        # makes.
        if self.mean.numel() > SMALL or not is_untraced():
            return None
        first, *others = ((part.shape, part.dtype, part.device) for part in self)
        return first[1:] if others == [first] * len(others) else None


def summed(parts: Sequence[Divergence]) -> torch.Tensor:
    """Return the sum of divergences of one kind, over their components too."""
    columns = zip(*parts, strict=True)
    whole = (torch.cat([part.reshape(-1) for part in column]) for column in columns)
    return Divergence(*whole).of_components().sum()


_NORMAL = torch.distributions.Normal


def dropout_terms(name: str, site: Any, fn: DroppedWeight) -> tuple[torch.Tensor, Any]:
    """Return E_q[log p] of a masked site, up to a constant, and the entropy of masks, [*batch]."""
    value = site["value"].value if isinstance(site["value"], MomentTensor) else None
    if isinstance(value, MaskedWeight) and not value.mask.uses:
        raise masked_site_not_used(name)
    log_prior = _dropout_prior(name, site["fn"], fn)
    if fn.design.temperature is None:
        return log_prior, None  # with fixed probabilities the entropy is constant
    each = mc_dropout.masks_per_weight(tuple(fn.loc.shape), fn.design.axis, fn.design.noise)
    entropy = mc_dropout.mask_entropy(fn.p) * (each * fn.event_shape.numel())
    return log_prior, entropy.expand(fn.batch_shape)


def _dropout_prior(name: str, prior: Any, fn: DroppedWeight) -> torch.Tensor:
    if isinstance(prior, torch.distributions.Independent):
        inner = _dropout_prior(name, prior.base_dist, fn)
        return sum_rightmost(inner, prior.reinterpreted_batch_ndims)
    if isinstance(prior, MaskedDistribution):
        return scale_and_mask(_dropout_prior(name, prior.base_dist, fn), mask=prior._mask)
    if isinstance(prior, ExpandedDistribution):
        return _dropout_prior(name, prior.base_dist, fn).expand(prior.batch_shape)
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


def observed_term(name: str, site: Any) -> torch.Tensor:
    """Return the scaled E_q[log p] of an observed site; its log-density where sites are drawn."""
    if (drawn := site.get("log_prob")) is not None:
        return scaled_sum(drawn, site)
    masked = site["mask"] is not None or isinstance(site["fn"], MaskedDistribution)
    if masked and is_validation_enabled():
        refuse_infinite_data(name, site)  # the loss would be finite, its gradients not
    try:
        log_prob = evaluate(name, site["fn"], site["value"])
    except UnsupportedMoments as error:
        raise error.at_site(name, site.get("line", "")) from None
    if is_validation_enabled():
        check_site_shape({**site, "log_prob": log_prob}, math.inf)  # type: ignore[arg-type]
    return scaled_sum(log_prob, site)
