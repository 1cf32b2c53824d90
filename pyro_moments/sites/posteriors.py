"""Read the moments of a guide site from its distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import sum_rightmost
from torch.distributions.transforms import (
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    SigmoidTransform,
    SoftplusTransform,
    TanhTransform,
    Transform,
)

from guides.families import mean_field
from guides.pyro.dropped_weight import DroppedWeight
from guides.pyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import (
    UnsupportedMoments,
    dependent_posterior,
    discrete_site,
    ignored_correlations,
    no_posterior_moments,
)
from moment_calculus.functions.table import Activation, Integrated, activation
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.operations.dropout.masked_weight import MaskedWeight, SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import variance_ratio
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
from moment_calculus.values import Gaussian, Spread, Value
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from pyro_moments.evaluation.tensor import MomentTensor, unwrap

NORMALS = (torch.distributions.Normal, dist.Normal)
_ACTIVATIONS = {
    ExpTransform: "exp",
    SigmoidTransform: "sigmoid",
    SoftplusTransform: "softplus",
    dist.transforms.SoftplusTransform: "softplus",  # Pyro's own class
    TanhTransform: "tanh",
}
WRAPPERS = (torch.distributions.Independent, ExpandedDistribution)


def gaussian_base(fn: Any, kinds: tuple[type, ...] = NORMALS) -> tuple[Any, list[Transform]]:
    """Return the Normal inside a distribution, and its transforms, the first to apply first.

    The Normal is None if there is none, or a transform mixes components or is not one to
    one.
    """
    transforms: list[Transform] = []
    while type(fn) not in kinds:
        if isinstance(fn, torch.distributions.TransformedDistribution):
            transforms = [p for t in fn.transforms for p in _elementary(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _is_elementwise(transform: Transform) -> bool:
    return transform.bijective and transform.domain.event_dim == transform.codomain.event_dim == 0


def _elementary(transform: Transform) -> list[Transform]:
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, ComposeTransform):
        return [part for inner in transform.parts for part in _elementary(inner)]
    return [] if _is_identity(transform) else [transform]


def _is_identity(transform: Transform) -> bool:
    """Return whether a transform does nothing, as the last one to a half line from zero."""
    parts = (transform.loc, transform.scale) if isinstance(transform, AffineTransform) else None
    return parts is not None and not any(map(torch.is_tensor, parts)) and parts == (0, 1)


def mixes_elements(transform: Transform) -> bool:
    """Return whether a transform takes several elements to one, as to a simplex."""
    return any(p.domain.event_dim or p.codomain.event_dim for p in _elementary(transform))


def image_of(base: Gaussian, transforms: Sequence[Transform]) -> Value:
    """Return the image of a Gaussian under elementwise transforms, the first to apply first."""
    value: Value = base
    for transform in transforms:
        if isinstance(transform, AffineTransform):
            value = scale_shift(value, transform.scale, transform.loc)
        else:
            # By a known activation, bounds are known and later functions can be joined to
            # it.
            value = apply(_function(transform), value)
    return value


def _function(transform: Transform) -> Activation:
    name = _ACTIVATIONS.get(type(transform))
    # The bound method has a hash; transforms that compare by value have none.
    return Integrated(transform.__call__) if name is None else activation(name)


def _apply(transforms: Sequence[Transform], points: torch.Tensor):
    """Return the image of points, and the log-determinant of all transforms there."""
    total = torch.zeros_like(points)
    for transform in transforms:
        image = transform(points)
        total, points = total + transform.log_abs_det_jacobian(points, image), image
    return points, total


def expected_log_slope(
    transforms: Sequence[Transform], mean: torch.Tensor, variance: torch.Tensor
) -> torch.Tensor:
    """Return E[log |dz/du|] of a transform z of a Gaussian u, for its entropy."""
    log_slope = Integrated(lambda points: _apply(transforms, points)[1])
    return log_slope.moments(mean, variance)[0]


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
