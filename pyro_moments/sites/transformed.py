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
            transforms = [p for t in fn.transforms for p in _flattened(t)] + transforms
        elif not isinstance(fn, WRAPPERS):
            return None, []
        fn = fn.base_dist
    return (fn if all(map(_is_elementwise, transforms)) else None), transforms


def _is_elementwise(transform: Transform) -> bool:
    return transform.bijective and transform.domain.event_dim == transform.codomain.event_dim == 0


def _flattened(transform: Transform) -> list[Transform]:
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, ComposeTransform):
        return [part for inner in transform.parts for part in _flattened(inner)]
    return [] if _is_identity(transform) else [transform]


def _is_identity(transform: Transform) -> bool:
    """Return whether a transform does nothing, as the last one to a half line from zero."""
    parts = (transform.loc, transform.scale) if isinstance(transform, AffineTransform) else None
    return parts is not None and not any(map(torch.is_tensor, parts)) and parts == (0, 1)


def mixes_elements(transform: Transform) -> bool:
    """Return whether a transform takes several elements to one, as to a simplex."""
    return any(p.domain.event_dim or p.codomain.event_dim for p in _flattened(transform))


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
