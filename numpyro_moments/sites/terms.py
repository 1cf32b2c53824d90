"""Moments of latent sites by their posteriors, and terms of all sites."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import distributions as dist
from numpyro.distributions import transforms
from numpyro.distributions.util import scale_and_mask

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.likelihoods import divergences, sum_trailing
from moment_calculus.numerics import private_apis, row_sums
from moment_calculus.operations import catalogue as ops
from moment_guides.numpyro import DroppedWeight, FastNormal, TridiagonalNormal
from moment_inference.objectives import LatentTerms, Posteriors, at_site
from numpyro_moments.evaluation.failure_causes import mask_of
from numpyro_moments.evaluation.wrappers import WRAPPERS
from numpyro_moments.likelihoods.expected import evaluate
from numpyro_moments.likelihoods.structure import random_leaves
from numpyro_moments.rules.table import Refused, is_random

_ACTIVATIONS = {
    transforms.ExpTransform: "exp",
    transforms.SigmoidTransform: "sigmoid",
    transforms.SoftplusTransform: "softplus",
}


class _Posteriors(Posteriors):
    framework = "NumPyro"
    wrappers, mask = WRAPPERS, dist.MaskedDistribution
    normals = (dist.Normal, FastNormal)
    chain, dropped, delta = TridiagonalNormal, DroppedWeight, dist.Delta
    full_rank = (dist.MultivariateNormal, dist.LowRankMultivariateNormal)
    transformed = dist.TransformedDistribution
    affine, composed = transforms.AffineTransform, transforms.ComposeTransform
    identity = (transforms.IdentityTransform,)
    correlation = transforms.CorrMatrixCholeskyTransform
    mixed = {  # noqa: RUF012
        (transforms.OrderedTransform,): ops.ORDERED,
        (transforms.ZeroSumTransform,): ops.zero_sum,
        (transforms.StickBreakingTransform,): ops.SIMPLEX,
        (transforms.CorrCholeskyTransform,): ops.CORRELATION_FACTOR,
        (transforms.CorrCholeskyTransform, correlation): ops.CORRELATION,
    }

    def value(self, parameter: Any) -> Any:
        return parameter if is_random(parameter) else jnp.asarray(parameter)

    def random_parameters(self, distribution: Any) -> list[Any]:
        return random_leaves(distribution)

    def is_one_to_one(self, transform: Any) -> bool:
        if isinstance(transform, transforms.AffineTransform):
            return True
        arrays = any(jnp.ndim(part) for part in jax.tree.leaves(transform))
        return not arrays and not isinstance(transform, transforms.AbsTransform)

    def function_of(self, transform: Any) -> ops.Activation:
        name = _ACTIVATIONS.get(type(transform))
        if name is None:
            return ops.Integrated(transform.__call__, constants=None)
        return ops.activation(name)

    def masked(self, terms: jax.Array, mask: Any) -> jax.Array:
        return jnp.where(mask, terms, 0.0)

    def mask_of(self, site: Any) -> Any:
        return mask_of(site)

    def broadcast(self, array: Any, shape: tuple[int, ...]) -> jax.Array:
        return jnp.broadcast_to(array, shape)


POSTERIORS = _Posteriors()
dropout_posterior = POSTERIORS.dropout_posterior
gaussian_base = POSTERIORS.gaussian_base
mixes_elements = POSTERIORS.mixes_elements
posterior_value = POSTERIORS.posterior_value
value_at_mean = POSTERIORS.value_at_mean
without_wrappers = POSTERIORS.without_wrappers


Site = Mapping[str, Any]


def scaled_sum(log_prob: jax.Array, site: Site) -> jax.Array:
    """Return the scaled sum of a site's terms [*batch]; raise if the scale is random."""
    if is_random(site["scale"]):
        raise UnsupportedMoments(
            "the scale of a site is random",
            sites=site["scale"].sites,
            remedy="scale sites by certain numbers, or use numpyro.factor" + errors.OR_DRAW,
        )
    return jnp.sum(scale_and_mask(log_prob, site["scale"]))


class _Terms(LatentTerms):
    def require_moments(self, *sites: Site) -> None:
        """Raise UnsupportedMoments if a part of a site was refused."""
        for site in sites:
            for value in [*random_leaves(site["fn"]), site["value"], site["scale"]]:
                if isinstance(value, Refused):
                    raise value.refusal

    def evaluate(self, name: str, fn: Any, value: Any) -> jax.Array:
        return evaluate(name, fn, value)

    def random(self, value: Any) -> Any:
        return value

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
        if (drawn := guide_site.get("log_prob")) is not None:
            return -drawn
        # NumPyro's guides record a function of other sites as a Delta: the entropy is
        # counted with those sites, and the Delta holds the log-determinant.
        if isinstance(without_wrappers(fn), POSTERIORS.delta) or not is_random(value):
            return -evaluate(name, fn, value)
        return POSTERIORS.entropy(value, fn)


def _is_known(scale: Any) -> bool:
    """Return whether a scale is one number with a known value, unlike a traced one."""
    return scale is not None and np.ndim(scale) == 0 and not private_apis.is_traced(scale)


_TERMS = _Terms(POSTERIORS)
auxiliary_term = _TERMS.auxiliary_term
latent_term, rule_terms = _TERMS.latent_term, _TERMS.rule_terms


def observed_term(name: str, site: Site) -> jax.Array:
    """Return the scaled E_q[log p] of an observed site; its log-density at draws."""
    if "log_prob" in site:
        return scaled_sum(site["log_prob"], site)
    return _TERMS.closed_or_held(name, [site], partial(_closed_term, name, site))


def _closed_term(name: str, site: Site) -> jax.Array:
    with at_site(name, site):
        log_prob = evaluate(name, site["fn"], site["value"])
    return scaled_sum(log_prob, site)
