"""Read the moments of a guide site from its distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions import transforms as numpyro_transforms
from numpyro.distributions.util import sum_rightmost

from guides.families import mean_field
from guides.numpyro.dropped_weight import DroppedWeight
from guides.numpyro.precompiled_normal import PrecompiledNormal
from guides.numpyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.errors import (
    UnsupportedMoments,
    dependent_posterior,
    discrete_site,
    ignored_correlations,
    no_posterior_moments,
)
from moment_calculus.functions.table import Exp, Integrated, activation
from moment_calculus.likelihoods import divergences
from moment_calculus.likelihoods.families import unwrapped
from moment_calculus.operations.dropout.masked_weight import MaskedWeight, SiteMask, masked_weight
from moment_calculus.operations.dropout.noise import variance_ratio
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, Spread, Value
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from numpyro_moments.likelihoods.structure import random_leaves
from numpyro_moments.rules.table import is_random

WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
_RECOGNISED: dict[type, Callable[[], Any]] = {
    numpyro_transforms.ExpTransform: Exp,
    numpyro_transforms.SigmoidTransform: lambda: activation("sigmoid"),
    numpyro_transforms.SoftplusTransform: lambda: activation("softplus"),
}
NORMALS = (dist.Normal, PrecompiledNormal)


def gaussian_base(
    fn: Any, kinds: tuple[type, ...] = NORMALS
) -> tuple[Any, list[numpyro_transforms.Transform]]:
    """Return the Normal behind a distribution, and its transforms in order of application.

    Masks, expansions and independent dimensions are ignored. The Normal is None if there
    is none, or if a transform mixes components.
    """
    transforms: list[numpyro_transforms.Transform] = []
    while type(fn) not in kinds:
        if isinstance(fn, dist.TransformedDistribution):
            transforms = [p for t in fn.transforms for p in _elementary(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _elementary(transform: numpyro_transforms.Transform) -> list[numpyro_transforms.Transform]:
    while isinstance(transform, numpyro_transforms.IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, numpyro_transforms.ComposeTransform):
        return [part for inner in transform.parts for part in _elementary(inner)]
    return [] if isinstance(transform, numpyro_transforms.IdentityTransform) else [transform]


def _is_elementwise(transform: numpyro_transforms.Transform) -> bool:
    """Return whether a transform is one to one by component; with array parameters: affine."""
    one_to_one = not isinstance(transform, numpyro_transforms.AbsTransform)
    affine = isinstance(transform, numpyro_transforms.AffineTransform)
    apart = transform.domain.event_dim == transform.codomain.event_dim == 0
    return one_to_one and apart and (affine or not _has_arrays(transform))


def _has_arrays(transform: numpyro_transforms.Transform) -> bool:
    return any(jnp.ndim(part) for part in jax.tree.leaves(transform))


def mixes_elements(transform: numpyro_transforms.Transform) -> bool:
    """Return whether a transform maps several elements to one, as to a simplex."""
    return any(p.domain.event_dim or p.codomain.event_dim for p in _elementary(transform))


def image_of(base: Gaussian, transforms: Sequence[numpyro_transforms.Transform]) -> Value:
    """Return the image of a Gaussian under elementwise transforms, in order of application."""
    # Other transforms are integrated at once, as one function. Affine maps stay separate,
    # so that their arrays move with the value and the bounds of a recognised function are
    # known.
    value: Value = base
    run: list[numpyro_transforms.Transform] = []
    for transform in transforms:
        if isinstance(transform, numpyro_transforms.AffineTransform):
            value, run = _applied(run, value), []
            value = scale_shift(value, transform.scale, transform.loc)
        else:
            run.append(transform)
    return _applied(run, value)


def _applied(run: list[numpyro_transforms.Transform], value: Value) -> Value:
    if not run:
        return value
    if len(run) == 1 and type(run[0]) in _RECOGNISED:
        return apply(_RECOGNISED[type(run[0])](), value)
    return apply(Integrated(lambda points: _image(run, points)[0], constants=None), value)


def _image(
    transforms: Sequence[numpyro_transforms.Transform], points: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the image of points under transforms, and the log-determinant there."""
    total = jnp.zeros_like(points)
    for transform in transforms:
        image = transform(points)
        total, points = total + transform.log_abs_det_jacobian(points, image), image
    return points, total


def expected_log_slope(
    transforms: Sequence[numpyro_transforms.Transform], mean: jax.Array, variance: jax.Array
) -> jax.Array:
    """Return E[log |dz/du|] of a site z that is a transform of a Gaussian u, for its entropy."""
    log_slope = Integrated(lambda points: _image(transforms, points)[1], constants=None)
    return log_slope.moments(mean, variance)[0]


def dropout_posterior(fn: Any) -> DroppedWeight | None:
    """Return the posterior of a masked site without wrappers; None for any other site."""
    inner = unwrapped(fn, WRAPPERS)[0]
    return inner if isinstance(inner, DroppedWeight) else None


def dropout_value(name: str, fn: DroppedWeight, propagation: Propagation) -> MaskedWeight:
    """Return the value of a masked site, before it is contracted with inputs."""
    per_weight = fn.design.noise == "dropconnect"
    is_switch = fn.design.noise == "bernoulli"
    mask = SiteMask(name, variance_ratio(fn.p), fn.design.axis, per_weight, is_switch)
    return masked_weight(fn.loc, mask, propagation)


_FULL_RANK = (dist.MultivariateNormal, dist.LowRankMultivariateNormal)


def posterior_value(name: str, fn: Any, propagation: Propagation, remedy: str = "") -> Any:
    """Return the value of a latent site with the posterior ``fn``; raise if it has no moments.

    The posterior is a Normal with independent components given its location, or a chain;
    an elementwise transform of one; in full mode a multivariate Normal; or a dropped
    weight. A Delta is a point estimate or a function of other sites: its value is what it
    holds.
    """
    if (dropped := dropout_posterior(fn)) is not None:
        return dropout_value(name, dropped, propagation)
    base, transforms = gaussian_base(fn, (*NORMALS, TridiagonalNormal))
    if isinstance(base, TridiagonalNormal):
        return image_of(base.value(name, propagation), transforms)
    if base is not None:
        if random := random_leaves(transforms):
            raise dependent_posterior(name, "transform", random[0].sites)
        return image_of(_normal(name, fn, base, propagation), transforms)
    inner = without_wrappers(fn)
    if isinstance(inner, dist.Delta):
        shape = fn.batch_shape + fn.event_shape
        return inner.v if inner.v.shape == shape else broadcast(inner.v, shape)
    if isinstance(inner, _FULL_RANK) and fn.event_dim == 1:
        return _full_rank(name, fn, inner, propagation)
    raise _no_moments(name, fn, remedy)


def entropy(value: Value, fn: Any) -> jax.Array:
    """Return −E_q[log q] of a site given those before it, zero where it is masked."""
    if isinstance(fn, WRAPPERS):
        return _wrapped(fn, entropy(value, fn.base_dist))
    normal, transforms = gaussian_base(fn, (*NORMALS, TridiagonalNormal))
    if normal is None:
        return jnp.broadcast_to(fn.entropy(), fn.batch_shape)
    shape = fn.batch_shape + fn.event_shape
    result = divergences.gaussian_entropy(jnp.broadcast_to(normal.scale**2, shape))
    if transforms:
        slope = divergences.expected_log_slope(value)
        if slope is None:
            mean, variance = (jnp.broadcast_to(part, shape) for part in _marginal(normal))
            slope = expected_log_slope(transforms, mean, variance)
        result = result + slope
    return sum_rightmost(result, fn.event_dim) + half_log_determinant(normal)


def half_log_determinant(fn: Any) -> Any:
    """Return ½ log |R| of the correlations of an event; zero for independent components."""
    return 0.5 * fn.log_determinant() if isinstance(fn, TridiagonalNormal) else 0.0


def _wrapped(fn: Any, terms: jax.Array) -> jax.Array:
    """Return terms of a distribution as terms of its mask, expansion or independent dimensions."""
    if isinstance(fn, dist.Independent):
        return sum_rightmost(terms, fn.reinterpreted_batch_ndims)
    terms = jnp.broadcast_to(terms, fn.batch_shape)
    return jnp.where(fn._mask, terms, 0.0) if isinstance(fn, dist.MaskedDistribution) else terms


def _marginal(normal: dist.Normal) -> tuple[Any, Any]:
    """Return mean and variance of a Normal whose location may be random."""
    if not is_random(normal.loc):
        return normal.loc, normal.scale**2
    centre = normal.loc.gaussian()
    return centre.mean, centre.variance + normal.scale**2


def without_wrappers(fn: Any) -> Any:
    """Return the distribution inside masks, expansions and independent dimensions."""
    return unwrapped(fn, WRAPPERS)[0]


def _normal(name: str, fn: Any, base: Any, propagation: Propagation) -> Gaussian:
    return mean_field.site(
        name,
        base.loc,
        base.scale,
        propagation,
        shape=fn.batch_shape + fn.event_shape,
        event_dim=fn.event_dim,
        zeros_like=jnp.zeros_like,
        broadcast_to=jnp.broadcast_to,
    )


def _full_rank(name: str, fn: Any, inner: Any, propagation: Propagation) -> Gaussian:
    if not propagation.full:
        raise ignored_correlations(name, inner)
    if random := random_leaves(inner):
        parameter = "location" if is_random(inner.loc) else "covariance"
        raise dependent_posterior(name, parameter, random[0].sites)
    shape = fn.batch_shape + fn.event_shape
    covariance = jnp.broadcast_to(inner.covariance_matrix, shape + fn.event_shape)
    spread, support = Spread(covariance=covariance), all_elements([name])
    return Gaussian(
        jnp.broadcast_to(inner.loc, shape), spread, support=support, propagation=propagation
    )


def _no_moments(name: str, fn: Any, remedy: str) -> UnsupportedMoments:
    inner = without_wrappers(fn)
    if inner.support is not None and inner.support.is_discrete:
        return discrete_site(name, inner, framework="NumPyro")
    return no_posterior_moments(name, inner, remedy)
