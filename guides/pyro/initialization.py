"""Choose the initial locations of a guide."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import biject_to

from guides.families.initialization import initial_noise_scale
from guides.pyro.supports import is_real


def init_to_network(site: dict | None = None) -> object:
    """Start at the prior mean; break the symmetry of weights and spread the kinks of ReLUs.

    The noise of matrices has standard deviation √(2 / (rows + columns)), which breaks the
    symmetry between hidden units whichever axis is the input; that of vectors ½, because
    units whose kinks all start at zero keep a network nearly linear until its noise has
    absorbed what it cannot fit. Neither exceeds the prior's standard deviation. Scalars
    start at the prior mean, sites with constrained support where their unconstrained
    value is zero.

    Args:
        site: Pyro sample site; without one the function itself is returned, as Pyro's
            initialisers do.

    Returns:
        Initial value of the site.

    Source: Glorot and Bengio 2010, eq. 12.
    """
    if site is None:
        return init_to_network
    fn = site["fn"]
    with torch.no_grad():
        transform = biject_to(fn.support)
        example = _example(fn)
        unconstrained = example.new_zeros(transform.inverse_shape(example.shape))
        if unconstrained.shape != example.shape or not is_real(fn.support):
            return transform(unconstrained)
        return _location(fn, example) + _noise(fn, example)


def _example(fn: Any) -> torch.Tensor:
    """Return a draw for its shape, dtype and device; zeros if the prior is improper."""
    try:
        return fn.sample().detach()
    except NotImplementedError:
        return torch.zeros(fn.batch_shape + fn.event_shape)


def _location(fn: torch.distributions.Distribution, like: torch.Tensor) -> torch.Tensor:
    try:
        mean = fn.mean.expand(like.shape).to(like)
    except NotImplementedError:
        return torch.zeros_like(like)
    return torch.where(torch.isfinite(mean), mean, torch.zeros_like(mean))


def _noise(fn: Any, like: torch.Tensor) -> torch.Tensor:
    limit = initial_noise_scale(fn.event_dim, like.shape)
    if limit == 0:
        return torch.zeros_like(like)
    try:
        variance = fn.variance.expand(like.shape).to(like)
    except NotImplementedError:
        return limit * torch.randn_like(like)
    return variance.nan_to_num(limit**2).sqrt().clamp(max=limit) * torch.randn_like(like)
