"""Draw from Beta and Dirichlet distributions under vmap, which does not support torch's draws.

Gamma variables divided by their sum have the same distribution. vmap can draw them, with
pathwise gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from torch.distributions import Beta, Dirichlet, TransformedDistribution

from moment_calculus.likelihoods.families import unwrapped

_WRAPPERS = (torch.distributions.Independent, ExpandedDistribution, MaskedDistribution)


def draw_by_gammas(fn: Any) -> torch.Tensor | None:
    """Return a reparameterised draw, or None if fn is not made of a Beta or Dirichlet."""
    inner, shape = unwrapped(fn, _WRAPPERS)[0], fn.batch_shape + fn.event_shape
    if isinstance(inner, Dirichlet):
        return _divided(inner.concentration.expand(shape))
    if isinstance(inner, Beta):
        pairs = torch.stack([inner.concentration1, inner.concentration0], -1)
        return _divided(pairs.expand(*shape, 2))[..., 0]
    if not isinstance(inner, TransformedDistribution):
        return None
    if shape != inner.batch_shape + inner.event_shape:
        inner = inner.expand(shape[: len(shape) - len(inner.event_shape)])
    value = draw_by_gammas(inner.base_dist)
    for transform in inner.transforms if value is not None else ():
        value = transform(value)
    return value


def _divided(concentration: torch.Tensor) -> torch.Tensor:
    tiny = torch.finfo(concentration.dtype).tiny
    gammas = torch._standard_gamma(concentration).clamp(min=tiny)
    parts = gammas / gammas.sum(-1, keepdim=True)
    return parts.clamp(tiny, 1 - torch.finfo(concentration.dtype).eps / 2)
