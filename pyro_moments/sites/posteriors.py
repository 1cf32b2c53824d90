"""Read the moments of a guide site from its distribution."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.util import sum_rightmost

from guides.families import mean_field
from guides.pyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.hosts.wording import (
    dependent_posterior,
    discrete_site,
    ignored_correlations,
    no_posterior_moments,
)
from moment_calculus.hosts.wrappers import unwrapped
from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.values import Gaussian, Spread, Value
from moment_calculus.values.support import all_elements
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.sites.masked import dropout_posterior, dropout_value
from pyro_moments.sites.transformed import (
    NORMALS,
    WRAPPERS,
    expected_log_slope,
    gaussian_base,
    image_of,
)

_FULL_RANK = (
    torch.distributions.MultivariateNormal,
    torch.distributions.LowRankMultivariateNormal,
)


def posterior_value(name: str, fn: Any, propagation: Propagation, remedy: str = "") -> Any:
    """Return the value of a latent site with the posterior ``fn``; raise if it has no moments.

    The posterior is a Normal with independent components given its location, or a chain;
    an elementwise transform of one; in full mode a multivariate Normal; or a dropped
    weight.
    """
    if (dropped := dropout_posterior(fn)) is not None:
        return dropout_value(name, dropped, propagation)
    base, transforms = gaussian_base(fn, (*NORMALS, TridiagonalNormal))
    if isinstance(base, TridiagonalNormal):
        return image_of(base.value(name, propagation), transforms)
    if base is not None:
        return image_of(_normal(name, fn, base, propagation), transforms)
    inner = without_wrappers(fn)
    if isinstance(inner, _FULL_RANK) and fn.event_dim == 1:
        return _full_rank(name, fn, inner, propagation)
    raise _no_moments(name, fn, remedy)


def entropy(value: Value, fn: Any) -> torch.Tensor:
    """Return −E_q[log q] of a site given the sites before it, [*batch]."""
    normal, transforms = gaussian_base(fn, (*NORMALS, TridiagonalNormal))
    if normal is None:
        return fn.entropy()
    shape = fn.batch_shape + fn.event_shape
    result = divergences.gaussian_entropy((normal.scale * normal.scale).expand(shape))
    if transforms:
        slope = divergences.expected_log_slope(value)
        if slope is None:
            mean, variance = (part.expand(shape) for part in _marginal(normal))
            slope = expected_log_slope(transforms, mean, variance)
        result = result + slope
    return sum_rightmost(result, fn.event_dim) + half_log_determinant(normal)


def half_log_determinant(fn: Any) -> Any:
    """Return ½ log |R| of the correlation matrix of an event; zero if that is diagonal."""
    return 0.5 * fn.log_determinant() if isinstance(fn, TridiagonalNormal) else 0.0


def _marginal(normal: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and variance of a Normal whose location may be random."""
    variance = normal.scale * normal.scale
    if not isinstance(normal.loc, MomentTensor):
        return normal.loc, variance
    location = normal.loc.value.gaussian()
    return location.mean, location.variance + variance


def without_wrappers(fn: Any) -> Any:
    """Return the distribution inside expansions and independent dimensions."""
    return unwrapped(fn, WRAPPERS)[0]


def _normal(name: str, fn: Any, base: Any, propagation: Propagation) -> Gaussian:
    return mean_field.site(
        name,
        unwrap(base.loc),
        unwrap(base.scale),
        propagation,
        shape=fn.batch_shape + fn.event_shape,
        event_dim=fn.event_dim,
        zeros_like=torch.zeros_like,
        broadcast_to=lambda part, shape: part if part.shape == shape else part.expand(shape),
    )


def _full_rank(name: str, fn: Any, inner: Any, propagation: Propagation) -> Gaussian:
    if not propagation.full:
        raise ignored_correlations(name, inner)
    if isinstance(inner.loc, MomentTensor):
        raise dependent_posterior(name, "location", inner.loc.value.sites)
    shape = fn.batch_shape + fn.event_shape
    covariance = inner.covariance_matrix.expand(shape + fn.event_shape)
    spread, support = Spread(covariance=covariance), all_elements([name])
    return Gaussian(inner.loc.expand(shape), spread, support=support, propagation=propagation)


def _no_moments(name: str, fn: Any, remedy: str) -> UnsupportedMoments:
    inner = without_wrappers(fn)
    if inner.support.is_discrete:
        return discrete_site(name, inner, framework="Pyro")
    return no_posterior_moments(name, inner, remedy)
