"""Sites that are known functions of a Gaussian: LogNormal and other transformed Normals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions import transforms as host

from guides.numpyro.started_normal import StartedNormal
from moment_calculus.functions.table import Exp, Integrated, activation
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
from moment_calculus.values import Gaussian, Value

WRAPPERS = (dist.Independent, dist.ExpandedDistribution, dist.MaskedDistribution)
_RECOGNISED: dict[type, Callable[[], Any]] = {
    host.ExpTransform: Exp,
    host.SigmoidTransform: lambda: activation("sigmoid"),
    host.SoftplusTransform: lambda: activation("softplus"),
}

NORMALS = (dist.Normal, StartedNormal)


def gaussian_base(fn: Any, kinds: tuple[type, ...] = NORMALS) -> tuple[Any, list[host.Transform]]:
    """The Normal behind a distribution with independent components, and its transforms.

    Args:
        fn: a distribution; masks, expansions and independent dimensions are looked through.
        kinds: the classes of Normals that are looked for.

    Returns:
        The Normal, or None if there is none or a transform mixes components; the transforms, the
        first to apply first, without identities.
    """
    transforms: list[host.Transform] = []
    while type(fn) not in kinds:
        if isinstance(fn, dist.TransformedDistribution):
            transforms = [p for t in fn.transforms for p in _parts(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _parts(transform: host.Transform) -> list[host.Transform]:
    while isinstance(transform, host.IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, host.ComposeTransform):
        return [part for inner in transform.parts for part in _parts(inner)]
    return [] if isinstance(transform, host.IdentityTransform) else [transform]


def _is_elementwise(transform: host.Transform) -> bool:
    """Whether it maps components one to one; parameters that are arrays have to be affine."""
    one_to_one = not isinstance(transform, host.AbsTransform)
    affine = isinstance(transform, host.AffineTransform)
    apart = transform.domain.event_dim == transform.codomain.event_dim == 0
    return one_to_one and apart and (affine or not _has_arrays(transform))


def _has_arrays(transform: host.Transform) -> bool:
    return any(jnp.ndim(part) for part in jax.tree.leaves(transform))


def mixes(transform: host.Transform) -> bool:
    """Whether a transform takes several elements to one, as to a simplex.

    Args:
        transform: to the support of a site.
    """
    return any(p.domain.event_dim or p.codomain.event_dim for p in _parts(transform))


def transformed(base: Gaussian, transforms: Sequence[host.Transform]) -> Value:
    """The image of a Gaussian.

    Transforms with the same parameters everywhere are one function of the Gaussian, integrated at
    once; affine maps stay what they are, so that their arrays move with the value and the bounds
    of a recognised function are known.

    Args:
        base: the Gaussian.
        transforms: elementwise ones, the first to apply first.
    """
    value: Value = base
    run: list[host.Transform] = []
    for transform in transforms:
        if isinstance(transform, host.AffineTransform):
            value, run = _applied(run, value), []
            value = scale_shift(value, transform.scale, transform.loc)
        else:
            run.append(transform)
    return _applied(run, value)


def _applied(run: list[host.Transform], value: Value) -> Value:
    if not run:
        return value
    if len(run) == 1 and type(run[0]) in _RECOGNISED:
        return apply(_RECOGNISED[type(run[0])](), value)
    return apply(Integrated(lambda points: _image(run, points)[0], constants=None), value)


def _image(transforms: Sequence[host.Transform], points: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Image of the points and the log-determinant of the chain there."""
    total = jnp.zeros_like(points)
    for transform in transforms:
        image = transform(points)
        total, points = total + transform.log_abs_det_jacobian(points, image), image
    return points, total


def expected_log_slope(
    transforms: Sequence[host.Transform], mean: jax.Array, variance: jax.Array
) -> jax.Array:
    """E[log |dz/du|] of a site z that is a transform of a Gaussian u, for its entropy.

    Args:
        transforms: elementwise ones, the first to apply first.
        mean: of u, of the site's shape.
        variance: likewise.
    """
    log_slope = Integrated(lambda points: _image(transforms, points)[1], constants=None)
    return log_slope.moments(mean, variance)[0]
