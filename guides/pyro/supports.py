"""Inspect the supports of latent sites, which must not depend on other latent sites."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from torch.distributions import constraints

from guides.families.latent_site import varying_support_error


class OnSupport(dist.TransformedDistribution):
    """A transformed distribution that knows its support.

    torch takes the codomain of the last transform: for positive numbers (exp, then adding
    zero) that would be all real numbers.
    """

    def with_support(self, support: constraints.Constraint) -> OnSupport:
        """Set the support of the transformed values; return the distribution itself."""
        self._site_support = support
        return self

    @constraints.dependent_property
    def support(self) -> Any:
        """Return the support."""
        return self._site_support

    def expand(self, batch_shape: Any, _instance: Any = None) -> OnSupport:
        """Expand to a batch shape; the support stays the same."""
        return super().expand(batch_shape, _instance).with_support(self._site_support)


def is_real(support: constraints.Constraint) -> bool:
    """Return whether a support is all real arrays."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    return type(support) is type(constraints.real)  # a copied guide holds a copy of the constraint


def slope_sign(transform: Any) -> torch.Tensor:
    """Return -1 where a transform decreases elementwise, else 1 (also if it mixes elements)."""
    try:
        return torch.as_tensor(transform.sign)
    except NotImplementedError:
        return torch.tensor(1)


def check_fixed_supports(
    model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
) -> None:
    """Raise UnsupportedMoments if a support depends on a latent site or a plate's subsample."""
    # The guide would silently keep the supports of its first run.
    for name, site in sites.items():
        if plate := _subsample_of(site):
            raise varying_support_error(name, plate, framework="pyro")
    bounded = [name for name, site in sites.items() if list(_bounds(site["fn"].support))]
    if not bounded:
        return
    values = {
        name: site["value"].detach().clone().requires_grad_()
        for name, site in sites.items()
        if site["value"].is_floating_point()
    }
    with torch.enable_grad():
        data = {name: value.clone() for name, value in values.items()}
        run = poutine.trace(poutine.condition(model, data=data)).get_trace
        trace = poutine.block(run)(*args, **kwargs)
    for name in bounded:
        fn: Any = trace.nodes[name]["fn"]
        if origins := _origins(fn.support, values):
            raise varying_support_error(name, ", ".join(sorted(origins)), framework="pyro")


def _bounds(support: constraints.Constraint) -> Iterator[torch.Tensor]:
    """Yield the tensors that a constraint holds."""
    for part in vars(support).values():
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, constraints.Constraint):
            yield from _bounds(part)


def _origins(support: constraints.Constraint, values: dict[str, torch.Tensor]) -> set[str]:
    """Return the latent sites on which the bounds of a support depend."""
    traced = [bound.sum() for bound in _bounds(support) if bound.requires_grad]
    if not traced:
        return set()
    slopes = torch.autograd.grad(traced, list(values.values()), allow_unused=True)
    return {name for name, slope in zip(values, slopes, strict=True) if slope is not None}


def _subsample_of(site: dict) -> str | None:
    """Return the subsampled plate along which a bound varies; None if there is none."""
    event_dim = site["fn"].event_dim
    for frame in site["cond_indep_stack"]:
        if not frame.vectorized or (frame.full_size or frame.size) == frame.size:
            continue
        for bound in _bounds(site["fn"].support):
            if _varies(bound, frame.dim - event_dim):
                return frame.name
    return None


def _varies(bound: torch.Tensor, axis: int) -> bool:
    within = bound.dim() >= -axis and bound.shape[axis] > 1
    return within and bool((bound != bound.narrow(axis, 0, 1)).any())
