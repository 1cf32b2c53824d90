"""Sites that are known functions of a Gaussian: LogNormal and other transformed Normals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution
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

from moment_calculus.functions.table import Activation, Integrated, activation
from moment_calculus.operations.elementwise.arithmetic import apply, scale_shift
from moment_calculus.values import Gaussian, Value

NORMALS = (torch.distributions.Normal, dist.Normal)
_RECOGNISED = {
    ExpTransform: "exp",
    SigmoidTransform: "sigmoid",
    SoftplusTransform: "softplus",
    dist.transforms.SoftplusTransform: "softplus",  # Pyro's own, of its arithmetic
    TanhTransform: "tanh",
}
WRAPPERS = (torch.distributions.Independent, ExpandedDistribution)


def gaussian_base(fn: Any, kinds: tuple[type, ...] = NORMALS) -> tuple[Any, list[Transform]]:
    """The Normal behind a distribution with independent components, and its transforms.

    Args:
        fn: a distribution; expansions and independent dimensions are looked through.
        kinds: the classes of Normals that are looked for.

    Returns:
        The Normal, or None if there is none or a transform mixes components or is not one to one;
        the transforms, the first to apply first, without identities.
    """
    transforms: list[Transform] = []
    while type(fn) not in kinds:
        if isinstance(fn, torch.distributions.TransformedDistribution):
            transforms = [p for t in fn.transforms for p in _parts(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _is_elementwise(transform: Transform) -> bool:
    return transform.bijective and transform.domain.event_dim == transform.codomain.event_dim == 0


def _parts(transform: Transform) -> list[Transform]:
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, ComposeTransform):
        return [part for inner in transform.parts for part in _parts(inner)]
    return [] if _is_identity(transform) else [transform]


def _is_identity(transform: Transform) -> bool:
    """As the one that ends the transforms to a half line from zero."""
    parts = (transform.loc, transform.scale) if isinstance(transform, AffineTransform) else None
    return parts is not None and not any(map(torch.is_tensor, parts)) and parts == (0, 1)


def mixes(transform: Transform) -> bool:
    """Whether a transform takes several elements to one, as to a simplex.

    Args:
        transform: to the support of a site.
    """
    return any(p.domain.event_dim or p.codomain.event_dim for p in _parts(transform))


def transformed(base: Gaussian, transforms: Sequence[Transform]) -> Value:
    """The image of a Gaussian.

    Each transform is the function of the table that it is, so that bounds are known and what the
    model does with the value goes on from there; others are integrated.

    Args:
        base: the Gaussian.
        transforms: elementwise ones, the first to apply first.
    """
    value: Value = base
    for transform in transforms:
        if isinstance(transform, AffineTransform):
            value = scale_shift(value, transform.scale, transform.loc)
        else:
            value = apply(_function(transform), value)
    return value


def _function(transform: Transform) -> Activation:
    name = _RECOGNISED.get(type(transform))
    # as a method: transforms that compare by value have no hash
    return Integrated(transform.__call__) if name is None else activation(name)


def _apply(transforms: Sequence[Transform], points: torch.Tensor):
    """Image of the points and the log-determinant of the chain there."""
    total = torch.zeros_like(points)
    for transform in transforms:
        image = transform(points)
        total, points = total + transform.log_abs_det_jacobian(points, image), image
    return points, total


def expected_log_slope(
    transforms: Sequence[Transform], mean: torch.Tensor, variance: torch.Tensor
) -> torch.Tensor:
    """E[log |dz/du|] of a site z that is a transform of a Gaussian u, for its entropy.

    Args:
        transforms: elementwise ones, the first to apply first.
        mean: of u, of the site's shape.
        variance: likewise.
    """
    log_slope = Integrated(lambda points: _apply(transforms, points)[1])
    return log_slope.moments(mean, variance)[0]
