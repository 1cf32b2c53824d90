"""Moments of latent sites by their posteriors, and terms of all sites."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask
from pyro.infer.util import is_validation_enabled
from pyro.util import check_site_shape
from torch.distributions import transforms

from moment_calculus import UnsupportedMoments
from moment_calculus.likelihoods import divergences, sum_trailing
from moment_calculus.operations import catalogue as ops
from moment_guides.pyro import DroppedWeight, TridiagonalNormal
from moment_inference.objectives import LatentTerms, Posteriors, at_site
from pyro_moments.evaluation.failure_causes import mask_of, refuse_infinite_data
from pyro_moments.evaluation.refused import Refused
from pyro_moments.evaluation.tensor import MomentTensor, unwrap, wrap
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.likelihoods.expected import evaluate
from pyro_moments.likelihoods.structure import random_tensors

_ACTIVATIONS = {
    transforms.ExpTransform: "exp",
    transforms.SigmoidTransform: "sigmoid",
    transforms.SoftplusTransform: "softplus",
    dist.transforms.SoftplusTransform: "softplus",  # Pyro's own class
    transforms.TanhTransform: "tanh",
}


class _Posteriors(Posteriors):
    framework = "Pyro"
    wrappers, mask = WRAPPERS, MaskedDistribution
    normals = (torch.distributions.Normal, dist.Normal)
    chain, dropped, delta = TridiagonalNormal, DroppedWeight, dist.Delta
    full_rank = (
        torch.distributions.MultivariateNormal,
        torch.distributions.LowRankMultivariateNormal,
    )
    transformed = torch.distributions.TransformedDistribution
    affine, composed = transforms.AffineTransform, transforms.ComposeTransform
    identity = ()
    value = staticmethod(unwrap)  # type: ignore[assignment]
    correlation = dist.transforms.CorrMatrixCholeskyTransform
    mixed = {  # noqa: RUF012
        (dist.transforms.OrderedTransform,): ops.ORDERED,
        (transforms.StickBreakingTransform,): ops.SIMPLEX,
        (transforms.CorrCholeskyTransform,): ops.CORRELATION_FACTOR,
        (transforms.CorrCholeskyTransform, correlation): ops.CORRELATION,
    }

    def random_parameters(self, distribution: Any) -> list[Any]:
        return [unwrap(tensor) for tensor in random_tensors(distribution)]

    def is_one_to_one(self, transform: Any) -> bool:
        return transform.bijective

    def function_of(self, transform: Any) -> ops.Activation:
        name = _ACTIVATIONS.get(type(transform))
        # The bound method has a hash; transforms that compare by value have none.
        return ops.Integrated(transform.__call__) if name is None else ops.activation(name)

    def masked(self, terms: torch.Tensor, mask: Any) -> torch.Tensor:
        return scale_and_mask(terms, mask=mask)

    def mask_of(self, site: Any) -> Any:
        return mask_of(site)

    def broadcast(self, array: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return array if array.shape == shape else array.expand(shape)


POSTERIORS = _Posteriors()
dropout_posterior = POSTERIORS.dropout_posterior
gaussian_base = POSTERIORS.gaussian_base
mixes_elements = POSTERIORS.mixes_elements
posterior_value = POSTERIORS.posterior_value
value_at_mean = POSTERIORS.value_at_mean
without_wrappers = POSTERIORS.without_wrappers


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
        if self.mean.numel() > SMALL:
            return None
        first, *others = [(part.shape, part.dtype, part.device) for part in self]
        return first[1:] if others == [first] * len(others) else None


def summed(parts: Sequence[Divergence]) -> torch.Tensor:
    """Return the sum of divergences of one kind, over their components too."""
    columns = zip(*parts, strict=True)
    whole = (torch.cat([part.reshape(-1) for part in column]) for column in columns)
    return Divergence(*whole).of_components().sum()


def scaled_sum(log_prob: torch.Tensor, site: Any) -> torch.Tensor:
    """Return the sum of the terms [*batch] of a site, with its scale and mask."""
    terms = scale_and_mask(log_prob, site["scale"], site["mask"])
    return terms.sum() if terms.dim() else terms


class _Terms(LatentTerms):
    def require_moments(self, *sites: Any) -> None:
        """Raise UnsupportedMoments if a part of a site was refused."""
        for site in sites:
            for tensor in [*random_tensors(site["fn"]), *random_tensors([site["value"]])]:
                if isinstance(tensor.value, Refused):
                    raise tensor.value.refusal

    def evaluate(self, name: str, fn: Any, value: Any) -> torch.Tensor:
        return evaluate(name, fn, wrap(value))

    def random(self, value: Any) -> Any:
        return wrap(value)

    def scaled_sum(self, terms: torch.Tensor, site: Any) -> torch.Tensor:
        return scaled_sum(terms, site)

    def has_same_scale(self, site: Any, other: Any) -> bool:
        scales = site["scale"], other["scale"]
        same = scales[0] is scales[1] or (isinstance(scales[0], float) and scales[0] == scales[1])
        return same and site["mask"] is other["mask"]

    def divergence(self, site: Any, guide_site: Any) -> torch.Tensor | None:
        parts = _divergence(site, guide_site)
        if parts is None:
            return None
        divergence = sum_trailing(parts.of_components(), site["fn"].event_dim)
        return divergence - POSTERIORS.half_log_determinant(without_wrappers(guide_site["fn"]))

    def entropy(self, name: str, value: Any, guide_site: Any) -> torch.Tensor:
        fn = guide_site["fn"]
        if not isinstance(value, torch.Tensor):  # a latent vector, which is only available by site
            return fn.entropy()
        if not isinstance(value, MomentTensor):
            return -fn.log_prob(value)
        # Pyro's guides record a function of other sites as a Delta: the entropy is counted
        # with those sites, and the Delta holds the log-determinant.
        if isinstance(fn, POSTERIORS.delta):
            return -_mean(fn.log_density)
        if isinstance(without_wrappers(fn), POSTERIORS.delta):
            inner = self.entropy(name, value, {**guide_site, "fn": fn.base_dist})
            return POSTERIORS.wrapped_terms(fn, inner)
        return POSTERIORS.entropy(value.value, fn)


_TERMS = _Terms(POSTERIORS)
auxiliary_term = _TERMS.auxiliary_term
latent_term, rule_terms = _TERMS.latent_term, _TERMS.rule_terms


def divergence_of(site: Any, guide_site: Any) -> Divergence | None:
    """Return a latent site's divergence if it has no scale or mask, else None."""
    fn = guide_site["fn"]
    if isinstance(without_wrappers(fn), (POSTERIORS.dropped, POSTERIORS.chain)):
        return None
    plain = all([s["mask"] is None and _is_one(s["scale"]) for s in (site, guide_site)])
    return _divergence(site, guide_site) if plain else None


def _is_one(scale: Any) -> bool:
    return isinstance(scale, int | float) and scale == 1


def _divergence(site: Any, guide_site: Any) -> Divergence | None:
    """Return the divergence to a certain Normal prior; None for others."""
    moments = unwrap(site["value"])
    prior = POSTERIORS.certain_prior(moments, guide_site["fn"], site["fn"])
    if prior is None:
        return None
    return Divergence(moments.mean, moments.variance, prior.loc, prior.scale)


def _mean(log_density: torch.Tensor) -> torch.Tensor:
    """Return the log-determinant of a transform, at its mean if it is random."""
    if isinstance(log_density, MomentTensor):
        return unwrap(log_density).gaussian().mean
    return log_density


def observed_term(name: str, site: Any) -> torch.Tensor:
    """Return the scaled E_q[log p] of an observed site; its log-density at draws."""
    if (drawn := site.get("log_prob")) is not None:
        return scaled_sum(drawn, site)
    return _TERMS.closed_or_held(name, [site], partial(_closed_term, name, site))


def _closed_term(name: str, site: Any) -> torch.Tensor:
    masked = site["mask"] is not None or isinstance(site["fn"], MaskedDistribution)
    if masked and is_validation_enabled():
        refuse_infinite_data(name, site)  # the loss would be finite, its gradients not
    with at_site(name, site):
        log_prob = evaluate(name, site["fn"], site["value"])
    if is_validation_enabled():
        _check_plates(name, {**site, "log_prob": log_prob})
    return scaled_sum(log_prob, site)


def _check_plates(name: str, site: Any) -> None:
    """Raise UnsupportedMoments for axes of an observed site that are in no plate."""
    try:
        check_site_shape(site, math.inf)  # type: ignore[arg-type]
    except ValueError as error:
        plates = [frame.size for frame in site["cond_indep_stack"] if frame.vectorized]
        shape = [*site["log_prob"].shape]
        raise UnsupportedMoments(
            f"site '{name}' has terms of shape {shape}, and plates of {plates} around it: put it "
            f"inside pyro.plate('data', {shape[-1] if shape else 1}), or call .to_event(1) on its "
            f"distribution ({str(error).partition(chr(10))[0]})",
            location=site.get("line", ""),
        ) from None
