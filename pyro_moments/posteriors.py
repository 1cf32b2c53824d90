"""The moments of a guide site, read from its distribution."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution

from guides.families import mean_field
from moment_calculus import divergences
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations import leaf
from moment_calculus.rulebooks import Propagation
from moment_calculus.values import Deferred, Gaussian, Value
from pyro_moments.tensor import MomentTensor
from pyro_moments.transformed import expected_log_slope, gaussian_base, transformed

SAMPLE_REMEDY = "name it in DeterministicELBO(sample_sites=...) to draw it by reparameterisation"
DISCRETE_REMEDY = (
    "sum it out in the model, e.g. by a mixture distribution, or use Pyro's TraceEnum_ELBO; hide "
    "it from an automatic guide only if the model enumerates it"
)
MEAN_FIELD_GUIDES = "use DVIGuide, AutoNormal or AutoDiagonalNormal"
_FULL_RANK = (
    torch.distributions.MultivariateNormal,
    torch.distributions.LowRankMultivariateNormal,
)
_WRAPPERS = (torch.distributions.Independent, ExpandedDistribution)


def posterior_value(name: str, fn: Any, propagation: Propagation, remedy: str = "") -> Value:
    """The live value of a latent site with a given posterior.

    Args:
        name: the site.
        fn: its distribution in the guide: a Normal with independent components, an elementwise
            transform of one, or (with full covariance) a multivariate Normal.
        propagation: how randomness flows from the site.
        remedy: what to do where the posterior is none of these; by default to sample the site.

    Raises:
        UnsupportedMoments: if the posterior is none of these, is discrete, or has random
            parameters; or if it is a multivariate Normal and only variances are propagated.
    """
    base, transforms = gaussian_base(fn)
    if base is not None:
        _check_certain(name, base.loc, base.scale)
        moments = mean_field.moments(base.loc, base.scale)
        mean, variance = (m.expand(fn.batch_shape + fn.event_shape) for m in moments)
        gaussian = leaf(name, mean, variance, propagation, event_dim=fn.event_dim)
        return Deferred(gaussian, transformed(transforms)) if transforms else gaussian
    inner = without_wrappers(fn)
    if isinstance(inner, _FULL_RANK) and fn.event_dim == 1:
        return _full_rank(name, fn, inner, propagation)
    raise _no_moments(name, fn, remedy)


def entropy(value: Value, fn: Any) -> torch.Tensor:
    """−E_q[log q] of a site, of its batch shape.

    Args:
        value: the site's value, from :func:`posterior_value`.
        fn: its distribution in the guide.
    """
    if isinstance(value, Gaussian) and value.has_covariance:
        return fn.entropy()
    base = value.base if isinstance(value, Deferred) else value
    result = divergences.gaussian_entropy(base.variance)
    if isinstance(value, Deferred):
        result = result + expected_log_slope(fn, base)
    return result.sum(tuple(range(-fn.event_dim, 0))) if fn.event_dim else result


def without_wrappers(fn: Any) -> Any:
    """The distribution inside expansions and independent dimensions.

    Args:
        fn: a distribution.
    """
    while isinstance(fn, _WRAPPERS):
        fn = fn.base_dist
    return fn


def _check_certain(name: str, loc: Any, spread: Any) -> None:
    if isinstance(loc, MomentTensor) or isinstance(spread, MomentTensor):
        random = [p for p in (loc, spread) if isinstance(p, MomentTensor)]
        others = frozenset().union(*(p.value.sites for p in random))
        raise UnsupportedMoments(
            f"guide site '{name}' depends on another latent site ({', '.join(sorted(others))}): "
            "the guide is not mean-field",
            sites=[name, *others],
            remedy="make the parameters of every guide site certain, or draw the sites by naming "
            "them in DeterministicELBO(sample_sites=...)",
        )


def _full_rank(name: str, fn: Any, inner: Any, propagation: Propagation) -> Gaussian:
    if not propagation.full:
        raise UnsupportedMoments(
            f"guide site '{name}' has a {type(inner).__name__} posterior: covariance='diagonal' "
            "would ignore its correlations",
            sites=[name],
            remedy=f"use DeterministicELBO(covariance='full'), or {MEAN_FIELD_GUIDES}",
        )
    _check_certain(name, inner.loc, inner.covariance_matrix)
    shape = fn.batch_shape + fn.event_shape
    return Gaussian(
        inner.loc.expand(shape),
        covariance=inner.covariance_matrix.expand(shape + fn.event_shape),
        sites=frozenset([name]),
        propagation=propagation,
    )


def _no_moments(name: str, fn: Any, remedy: str) -> UnsupportedMoments:
    inner = without_wrappers(fn)
    if inner.support.is_discrete:
        return UnsupportedMoments(
            f"latent site '{name}' is discrete ({type(inner).__name__}): it has no reparameterised "
            "samples and no Gaussian moments",
            sites=[name],
            remedy=DISCRETE_REMEDY,
        )
    return UnsupportedMoments(
        f"guide site '{name}' has a {type(inner).__name__} posterior; analytic moments need "
        "independent Normal components, elementwise transforms of them, or a multivariate Normal",
        sites=[name],
        remedy=remedy or SAMPLE_REMEDY,
    )
