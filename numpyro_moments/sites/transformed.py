"""Sites that are known functions of a Gaussian: LogNormal and other transformed Normals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist
from numpyro.distributions import transforms as numpyro_transforms

from guides.numpyro.precompiled_normal import PrecompiledNormal
from moment_calculus.functions.table import Exp, Integrated, activation
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
from moment_calculus.values import Gaussian, Value

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
            transforms = [p for t in fn.transforms for p in _parts(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _parts(transform: numpyro_transforms.Transform) -> list[numpyro_transforms.Transform]:
    while isinstance(transform, numpyro_transforms.IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, numpyro_transforms.ComposeTransform):
        return [part for inner in transform.parts for part in _parts(inner)]
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
    return any(p.domain.event_dim or p.codomain.event_dim for p in _parts(transform))


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
