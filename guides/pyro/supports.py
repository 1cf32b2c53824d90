"""Inspect the supports of latent sites, and choose their initial locations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from torch.distributions import biject_to, constraints

from guides.families.mean_field import initial_noise_scale, varying_support_error


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
    """Return -1 where a transform decreases elementwise, else 1."""
    try:
        return torch.as_tensor(transform.sign)
    except NotImplementedError:
        return torch.tensor(1)


def check_fixed_supports(
    model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
) -> None:
    """Raise if a support depends on a latent site or a plate's subsample."""
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
