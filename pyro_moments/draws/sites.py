"""Sites of a trace as containers have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import MaskedDistribution
from pyro.distributions.util import scale_and_mask

from moment_calculus.hosts.wrappers import unwrapped
from pyro_moments.prediction.predict import is_deterministic, is_factor
from pyro_moments.prediction.prediction import WRAPPERS


def is_function(site: Any) -> bool:
    """Whether a site is a deterministic one, also one that a reparameterisation made.

    Args:
        site: of a trace.
    """
    if is_deterministic(site):
        return True
    fn = site["fn"]
    is_masked = isinstance(fn, MaskedDistribution) and fn._mask is False
    inner = unwrapped(fn, (*WRAPPERS, MaskedDistribution))[0]
    return site["is_observed"] and is_masked and isinstance(inner, dist.Delta)


def is_told(site: Any) -> bool:
    """Whether a site is predicted.

    Args:
        site: of a trace.
    """
    return not is_function(site) and not is_factor(site["fn"])


def is_observed(site: Any) -> bool:
    """Whether a site is observed, and no factor.

    Args:
        site: of a trace.
    """
    return site["is_observed"] and is_told(site)


def event_dim_of(site: Any) -> int:
    """Trailing axes of one event; none of a deterministic site that does not say, all to Pyro.

    Args:
        site: of a trace.
    """
    event = site["fn"].event_dim
    return 0 if is_function(site) and event == site["value"].dim() else event


def whole_value(site: Any) -> torch.Tensor:
    """The value of a site, of the shape of its distribution where that is larger.

    Args:
        site: of a trace.
    """
    value, fn = site["value"], site["fn"]
    if is_function(site):
        return value
    shape = torch.broadcast_shapes(fn.batch_shape, value.shape[: value.dim() - fn.event_dim])
    return value.expand(shape + value.shape[value.dim() - fn.event_dim :])


def log_density(sites: Iterable[Any]) -> torch.Tensor:
    """Log density of sites together, with their scales and masks, a double.

    Args:
        sites: of a trace.
    """
    parts = [
        log_prob_of(site, site["scale"]).sum(dtype=torch.float64)  # of 10⁵ data, singles lose nats
        for site in sites
        if not is_deterministic(site)
    ]
    return torch.stack(parts).sum() if parts else torch.zeros((), dtype=torch.float64)


def log_prob_of(site: Any, scale: Any = 1.0) -> torch.Tensor:
    """Log density of each element of a site, with its mask.

    Args:
        site: of a trace.
        scale: by which it is multiplied.
    """
    return scale_and_mask(site["fn"].log_prob(site["value"]), scale, site["mask"])


def hidden(site: Any) -> int:
    """How many elements of the batch of a site a mask hides.

    Args:
        site: of a trace.
    """
    fn = site["fn"]
    shown = torch.ones(fn.batch_shape, dtype=torch.bool)
    masks = [site["mask"], fn._mask if isinstance(fn, MaskedDistribution) else None]
    for mask in masks:
        if mask is not None:
            shown = shown & torch.as_tensor(mask).cpu()
    return int((~shown).sum())
