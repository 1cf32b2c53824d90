"""Sites that are known functions of a Gaussian: LogNormal and other transformed Normals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution
from torch.distributions.transforms import (
    ComposeTransform,
    ExpTransform,
    IndependentTransform,
    Transform,
)

from moment_calculus.functions.table import Activation, Exp, Integrated
from moment_calculus.values import Gaussian

_NORMALS = (torch.distributions.Normal, dist.Normal)
WRAPPERS = (torch.distributions.Independent, ExpandedDistribution)


def gaussian_base(
    fn: Any,
) -> tuple[torch.distributions.Normal | None, list[Transform]]:
    """The Normal behind a distribution with independent components, and its transforms.

    Args:
        fn: a distribution; expansions and independent dimensions are looked through.

    Returns:
        The Normal, or None if there is none or a transform mixes components; the transforms, the
        first to apply first, without identities.
    """
    transforms: list[Transform] = []
    while type(fn) not in _NORMALS:
        if isinstance(fn, torch.distributions.TransformedDistribution):
            transforms = [p for t in fn.transforms for p in _parts(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    elementwise = all(t.domain.event_dim == t.codomain.event_dim == 0 for t in transforms)
    return (fn if elementwise else None), transforms


def _parts(transform: Transform) -> list[Transform]:
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, ComposeTransform):
        return [part for inner in transform.parts for part in _parts(inner)]
    return [transform]


def transformed(transforms: Sequence[Transform]) -> Activation:
    """The chain of transforms as an activation.

    Args:
        transforms: the first to apply first.
    """
    if len(transforms) == 1 and isinstance(transforms[0], ExpTransform):
        return Exp()
    return Integrated(lambda points: _apply(transforms, points)[0])


def _apply(transforms: Sequence[Transform], points: torch.Tensor):
    """Image of the points and the log-determinant of the chain there."""
    total = torch.zeros_like(points)
    for transform in transforms:
        image = transform(points)
        total, points = total + transform.log_abs_det_jacobian(points, image), image
    return points, total


def expected_log_slope(fn: Any, base: Gaussian) -> torch.Tensor:
    """E[log |dz/du|] of a site z that is a transform of a Gaussian u, for its entropy.

    Args:
        fn: the site's distribution in the guide.
        base: u.
    """
    _, transforms = gaussian_base(fn)
    log_slope = Integrated(lambda points: _apply(transforms, points)[1])
    return log_slope.moments(base.mean, base.variance)[0]
