"""Define the tridiagonal guide: neighbouring elements of a site are correlated Normals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints

from guides.families import chained_sites
from guides.families.chained_sites import (
    NO_PRIOR,
    TRIDIAGONAL_ERRORS,
    TRIDIAGONAL_OPTIONS,
    Design,
    Group,
    Groups,
    Options,
    order_of,
)
from guides.families.latent_site import LatentSite
from guides.families.tridiagonal import Order
from guides.numpyro.contractions import weights_of
from guides.numpyro.initialization import init_to_network
from guides.numpyro.latent_sites import Run, on_support
from guides.numpyro.mean_field import DVIGuide
from guides.numpyro.supports import is_latent, is_real
from guides.numpyro.tridiagonal_normal import TridiagonalNormal
from moment_calculus.hosts.docstrings import documented


@documented("NumPyro", errors=TRIDIAGONAL_ERRORS, options=TRIDIAGONAL_OPTIONS)
class TridiagonalGuide(DVIGuide):
    """Gaussian guide in which neighbouring elements of a site are correlated, in O(n).

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
        {options}
        prefix: part of the parameters' names, as in NumPyro's guides.

    {errors}
    """

    no_prior = NO_PRIOR

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
        prefix: str = "auto",
    ) -> None:
        self.options = Options(groups, scales, init_scale, correlation, learn_correlation)
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._design = Design({}, {}, frozenset())

    def fixed_settings(self) -> dict[str, Any]:
        """Return the settings of the posterior that are not parameters.

        A saved posterior can only be loaded into a guide with the same settings.
        """
        return self.options.fixed()

    def _look_at(self, model: Callable, run: Run, args: tuple, kwargs: dict) -> None:
        sites = {name: site for name, site in run.trace.items() if is_latent(site)}
        axes = weights_of(model, run.trace, args, kwargs).axes
        orders = {
            name: _order(site, run.location(name), axes.get(name, -1))
            for name, site in sites.items()
        }
        bounded = (name for name, site in sites.items() if not is_real(site["fn"].support))
        self._design = self.options.design(orders, bounded, sites)

    def _declare(
        self, site: LatentSite, initial: Callable[[str], jax.Array]
    ) -> tuple[jax.Array, ...]:
        """Declare the location, the scale of the site or its group, and ρ if it is learnt."""
        name = site.name
        if name not in self._design.groups:
            return super()._declare(site, initial)
        correlation = self._declare_correlation(self._design.groups[name])
        if name not in self._design.proportional:
            return (*super()._declare(site, initial), *correlation)
        loc = numpyro.param(
            self._name(name, "loc"),
            lambda key: chained_sites.started(initial(name)),
            event_dim=site.event_dim,
        )
        tau = numpyro.param(
            self._name(self._design.groups[name], "tau"),
            jnp.asarray(self.init_scale, loc.dtype),
            constraint=self.scale_constraint,
        )
        return (loc, tau, *correlation)

    def _declare_correlation(self, group: str) -> tuple[jax.Array, ...]:
        if not self.options.learn_correlation:
            return ()
        start, within = jnp.asarray(self.options.correlation), constraints.interval(-0.5, 0.5)
        name = self._name(group, "correlation")
        return (numpyro.param(name, start, constraint=within),)

    def _posterior(self, site: LatentSite, loc: jax.Array, *rest: Any) -> dist.Distribution:
        if site.name not in self._design.groups:
            return super()._posterior(site, loc, *rest)
        spread, *learnt = rest
        rho = learnt[0] if learnt else jnp.asarray(self.options.correlation, jnp.result_type(loc))
        scale = self._design.scale(site.name, loc, spread)
        base = TridiagonalNormal(loc, scale, rho, self._design.orders[site.name])
        return on_support(base, site)

    def _parameters(self, params: dict[str, jax.Array]) -> list[tuple]:
        """Return every latent site with its location and its further parameters."""
        known = self._known_sites()
        return [(site, *(params[name] for name in self._names(site.name))) for site in known]

    def _marginals(
        self, params: dict[str, jax.Array]
    ) -> list[tuple[LatentSite, jax.Array, jax.Array]]:
        return [
            (site, loc, abs(self._design.scale(site.name, loc, spread)))
            for site, loc, spread, *_ in self._parameters(params)
        ]

    def _names(self, site: str) -> tuple[str, ...]:
        """Return the names of a site's parameters, in the order of :meth:`_declare`."""
        group, loc = self._design.groups.get(site), self._name(site, "loc")
        if group is None:
            return loc, self._name(site, "scale")
        role = (group, "tau") if site in self._design.proportional else (site, "scale")
        learnt = (self._name(group, "correlation"),) if self.options.learn_correlation else ()
        return (loc, self._name(*role), *learnt)

    def summary(self, params: dict[str, jax.Array]) -> dict[str, Group]:
        """Return scale τ, correlation ρ, sites and number of elements of every group.

        Args:
            params: parameters, as ``svi.get_params`` gives them.
        """
        self._known_sites()
        members = self._design.members.items()
        return {group: self._summary(group, sites, params) for group, sites in members}

    def _summary(self, group: str, sites: tuple[str, ...], params: dict[str, jax.Array]) -> Group:
        rho = params.get(self._name(group, "correlation"), self.options.correlation)
        parts = {site.name: (loc, scale) for site, loc, scale in self._marginals(params)}
        return chained_sites.described(sites, [parts[site] for site in sites], float(rho))


def _order(site: dict, loc: jax.Array, axis: int) -> Order:
    """Return the order of the chain through a site whose inputs are on a negative ``axis``."""
    event_dim = site["fn"].event_dim + jnp.ndim(loc) - jnp.ndim(site["value"])
    return order_of(jnp.shape(loc), event_dim, axis)
