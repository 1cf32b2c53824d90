"""Define the guide with correlated neighbours, and the Normal of its sites."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.infer.autoguide.utils import deep_setattr
from pyro.nn import PyroModule, PyroParam
from torch.distributions import biject_to

from moment_guides.families import tridiagonal
from moment_guides.families.mean_field import FixedSettings, LatentSite, with_known_options
from moment_guides.families.tridiagonal import (
    NO_PRIOR,
    Group,
    Groups,
    Order,
    SiteLayout,
    TridiagonalNormalBase,
    TridiagonalOptions,
    chain_order,
)
from moment_guides.pyro.mc_dropout import weights_of
from moment_guides.pyro.mean_field import DVIGuide, OnSupport, init_to_network, is_real


class TridiagonalNormal(TridiagonalNormalBase, TorchDistribution):
    """A Normal whose neighbours in a chain through each event have correlation ρ, in O(n).

    Source: Posch and Pilz 2020.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor,
        scale: torch.Tensor,
        correlation: torch.Tensor,
        order: tridiagonal.Order,
    ) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        self.correlation, self.order = correlation, order
        split = self.loc.dim() - len(order.shape)
        super().__init__(self.loc.shape[:split], self.loc.shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def expand(self, batch_shape: Any, _instance: Any = None) -> TridiagonalNormal:
        """Return the same distribution with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Return reparameterised draws [*sample_shape, *batch, *event]."""
        loc, scale, correlation = self.chains
        shape = torch.Size(sample_shape) + loc.shape
        noise = torch.randn(shape, dtype=loc.dtype, device=loc.device)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))


class TridiagonalGuide(FixedSettings, DVIGuide):
    """Gaussian guide in which neighbouring elements of a site are correlated, in O(n).

    Args:
        model: the Pyro model; by default that of the first evaluation.
        groups: which sites have the same τ and ρ: lists of names, or a mapping of names
            to them; by default each site is a group, so that the weights and the biases
            of each layer are two.
        scales: ``"free"``, one standard deviation for each component, and the correlation
            ρ of neighbours, so that ρ = 0 is mean field; or ``"proportional"``, the
            source paper's: standard deviations τ |m| with one τ for a group, and the
            covariance ρ τ² m_j m_{j−1} of neighbours, whose correlation is ρ sign(m_j
            m_{j−1}).
        init_scale: initial standard deviations, or initial τ.
        correlation: initial ρ, in (−1/2, 1/2).
        learn_correlation: whether ρ is a parameter; ``correlation=0`` that is none is the
            paper's baseline of independent components.
        init_loc_fn: initial locations, a function of a site.
        create_plates: optional function that makes the plates, as in Pyro's guides.

    Each site is a chain through the event axes of its unconstrained value, element by
    element, the axis fastest along which the model contracts it: row by row of a weight
    [out, in] as of torch's layers, and the same order of the same weights [in, out] as of
    flax's. Different sites, and elements of plates, are independent. Draws, log-densities
    and divergences take O(n); ρ = ½ tanh(r) is a correlation for chains of every length.

    Sites that are one number have a free standard deviation, as under ``DVIGuide``, and
    so have those of a bounded support, where m = 0 is no special place. A proportional
    scale degenerates at m = 0: at the start means below 1e-3 are replaced by fixed small
    numbers up to 0.01, and |m| counts as 1e-6 at least (the source paper replaces them by
    random ones). A weight that the data do not need then costs ½ log(1 + 1/τ²) at least,
    and log |τ m| may keep means from changing their sign: on four regressions they
    predict worse than free scales and mean field by 0.4 to 2.7 in log-likelihood.

    Covariances are carried backward by default: a step of 13-50-2 takes a thirtieth in
    NumPyro of one with full covariances, and trained on the set yacht the loss is −179.0 by
    all three, −180.2 by 2000 draws.

    Linear maps take the covariances of neighbours into account in O(n), also that of the
    last weight of a row with the first of the next, which makes two outputs dependent;
    under ``covariance="diagonal"`` only what belongs to one output is kept, and of the
    inputs' covariances nothing. Other operations need the covariance of all n elements,
    or are refused (convolutions, weights that enter twice). Under
    ``propagation="sampled"`` a site is drawn once for each particle. ``linear_response``
    corrects ``scales="free"``; proportional scales are tied to the means, which it cannot
    know.

    Raises:
        ValueError: if an option is unknown, ``init_scale`` not positive, ``correlation``
            not in (−1/2, 1/2), or ``groups`` has a site twice.
        RuntimeError: when called without having met a model.
        UnsupportedMoments: when called, if ``groups`` leaves a site out or names one that
            is no chain.

    Source: Posch and Pilz 2020, for ``scales="proportional"``.

    Example:
        >>> guide = TridiagonalGuide(correlation=0.3)
    """

    default_covariance = "backward"
    why_no_prior = NO_PRIOR

    @with_known_options
    def __init__(
        self,
        model: Callable | None = None,
        *,
        groups: Groups | None = None,
        scales: str = "free",
        init_scale: float = 0.05,
        correlation: float = 0.0,
        learn_correlation: bool = True,
        init_loc_fn: Callable = init_to_network,
        create_plates: Callable | None = None,
    ) -> None:
        self.options = TridiagonalOptions(
            groups, scales, init_scale, correlation, learn_correlation
        )
        super().__init__(
            model, init_loc_fn=init_loc_fn, init_scale=init_scale, create_plates=create_plates
        )
        self._design = SiteLayout({}, {}, frozenset())

    def _inspect_model(
        self, model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
    ) -> None:
        axes = weights_of(model, sites, args, kwargs).axes
        orders = {name: _order(site, axes.get(name, -1)) for name, site in sites.items()}
        bounded = (name for name, site in sites.items() if not is_real(site["fn"].support))
        self._design = self.options.design(orders, bounded, sites)
        self.taus, self.correlations = PyroModule(), PyroModule()
        for group, members in self._design.members.items():
            self._add_group(group, members, sites[members[0]]["value"].detach())

    def _add_group(self, group: str, members: tuple[str, ...], like: torch.Tensor) -> None:
        options, positive = self.options, constraints.softplus_positive
        if not self._design.proportional_sites.isdisjoint(members):
            tau = PyroParam(like.new_tensor(options.init_scale), positive, 0)
            deep_setattr(self.taus, group, tau)
        if options.learn_correlation:
            within = constraints.interval(-0.5, 0.5)
            rho = PyroParam(like.new_tensor(options.correlation), within, 0)
            deep_setattr(self.correlations, group, rho)

    def _add_scale_parameters(self, name: str, loc: torch.Tensor, event_dim: int) -> None:
        """Create a site's scales unless they are τ m; then its initial m are nonzero."""
        if name not in self._design.proportional_sites:
            super()._add_scale_parameters(name, loc, event_dim)
            return
        start = PyroParam(tridiagonal.without_tiny_means(loc), constraints.real, event_dim)
        deep_setattr(self.locs, name, start)

    def _parameter_names(self, site: str) -> tuple[str, ...]:
        group = self._design.groups.get(site)
        spread = f"taus.{group}" if site in self._design.proportional_sites else f"scales.{site}"
        learnt = group is not None and self.options.learn_correlation
        return (f"locs.{site}", spread, *((f"correlations.{group}",) if learnt else ()))

    def _posterior(self, site: LatentSite, loc: torch.Tensor, *rest: Any) -> Any:
        if site.name not in self._design.groups:
            return super()._posterior(site, loc, *rest)
        spread, *learnt = rest
        rho = learnt[0] if learnt else loc.new_tensor(self.options.correlation)
        scale = self._design.scale(site.name, loc, spread)
        base = TridiagonalNormal(loc, scale, rho, self._design.orders[site.name])
        if is_real(site.support):
            return base
        return OnSupport(base, biject_to(site.support).with_cache()).with_support(site.support)

    @torch.no_grad()
    def summary(self) -> dict[str, Group]:
        """Return scale τ, correlation ρ, sites and number of elements of every group."""
        self._known_sites()
        members = self._design.members.items()
        return {group: self._summary(group, sites) for group, sites in members}

    def _summary(self, group: str, sites: tuple[str, ...]) -> Group:
        learnt = self.options.learn_correlation
        rho = float(attrgetter(group)(self.correlations)) if learnt else self.options.correlation
        parts = ([part.cpu().numpy() for part in self._marginal(site)] for site in sites)
        return tridiagonal.summarise_group(sites, parts, rho)

    def _marginal(self, site: str) -> tuple[torch.Tensor, torch.Tensor]:
        loc, spread, *_ = self._current_parameters(site)
        return loc, self._design.scale(site, loc, spread).abs()


def _order(site: dict, axis: int) -> Order:
    """Return the order of the chain through a site; its inputs are on ``axis``."""
    fn, value = site["fn"], site["value"]
    shape = biject_to(fn.support).inverse_shape(value.shape)
    return chain_order(shape, fn.event_dim + len(shape) - value.dim(), axis)
