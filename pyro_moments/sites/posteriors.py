"""The moments of a guide site, read from its distribution."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.util import sum_rightmost

from guides.families import mean_field
from moment_calculus.hosts.wording import (
    dependent_posterior,
    discrete_site,
    ignored_correlations,
    no_posterior_moments,
)
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.elementwise.arithmetic import add, leaf
from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian, Value
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.sites.transformed import WRAPPERS, expected_log_slope, gaussian_base, transformed

_FULL_RANK = (
    torch.distributions.MultivariateNormal,
    torch.distributions.LowRankMultivariateNormal,
)


def posterior_value(name: str, fn: Any, propagation: Propagation, remedy: str = "") -> Value:
    """The live value of a latent site with a given posterior.

    A Normal may be centred at another latent value: x ~ N(m, s²) with a random m is m plus an
    independent N(0, s²), which is exact where m is Gaussian.

    Args:
        name: the site.
        fn: its distribution in the guide: a Normal with components that are independent given its
            location, an elementwise transform of one, or (with full covariance) a multivariate
            Normal.
        propagation: how randomness flows from the site.
        remedy: what to do where the posterior is none of these; by default to sample the site.

    Raises:
        UnsupportedMoments: if the posterior is none of these, is discrete, or has other random
            parameters; or if it is a multivariate Normal and only variances are propagated.
    """
    base, transforms = gaussian_base(fn)
    if base is not None:
        gaussian = _normal(name, fn, base, propagation)
        return Deferred(gaussian, transformed(transforms)) if transforms else gaussian
    inner = without_wrappers(fn)
    if isinstance(inner, _FULL_RANK) and fn.event_dim == 1:
        return _full_rank(name, fn, inner, propagation)
    raise _no_moments(name, fn, remedy)


def entropy(value: Value, fn: Any) -> torch.Tensor:
    """−E_q[log q] of a site given those before it, of its batch shape.

    Args:
        value: the site's value, from :func:`posterior_value`.
        fn: its distribution in the guide.
    """
    normal, _ = gaussian_base(fn)
    if normal is None:
        return fn.entropy()
    variance = (normal.scale * normal.scale).expand(fn.batch_shape + fn.event_shape)
    result = divergences.gaussian_entropy(variance)
    if isinstance(value, Deferred):
        result = result + expected_log_slope(fn, value.base)
    return sum_rightmost(result, fn.event_dim)


def without_wrappers(fn: Any) -> Any:
    """The distribution inside expansions and independent dimensions.

    Args:
        fn: a distribution.
    """
    while isinstance(fn, WRAPPERS):
        fn = fn.base_dist
    return fn


def _normal(name: str, fn: Any, base: Any, propagation: Propagation) -> Gaussian:
    """A Normal site; with a random location, that location and independent noise."""
    loc, scale = base.loc, base.scale
    if isinstance(scale, MomentTensor):
        raise dependent_posterior(name, "scale", scale.value.sites)
    shape = fn.batch_shape + fn.event_shape
    centred = isinstance(loc, MomentTensor)
    if centred and not isinstance(loc.value, Gaussian):
        raise dependent_posterior(name, "non-linear location", loc.value.sites)
    moments = mean_field.moments(torch.zeros_like(scale) if centred else loc, scale)
    mean, variance = (m if m.shape == shape else m.expand(shape) for m in moments)
    gaussian = leaf(name, mean, variance, propagation, event_dim=fn.event_dim)
    return add(unwrap(loc.expand(shape)), gaussian).gaussian() if centred else gaussian


def _full_rank(name: str, fn: Any, inner: Any, propagation: Propagation) -> Gaussian:
    if not propagation.full:
        raise ignored_correlations(name, inner)
    if isinstance(inner.loc, MomentTensor):
        raise dependent_posterior(name, "location", inner.loc.value.sites)
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
        return discrete_site(name, inner, host="Pyro")
    return no_posterior_moments(name, inner, remedy)
