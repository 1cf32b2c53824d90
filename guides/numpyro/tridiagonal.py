"""Define the guide with correlated neighbours, and the Normal of its sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import Distribution, constraints

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
from moment_guides.numpyro.latent_sites import (
    ModelTrace,
    init_to_network,
    is_latent,
    is_real,
    on_support,
)
from moment_guides.numpyro.mc_dropout import weights_of
from moment_guides.numpyro.mean_field import DVIGuide


class TridiagonalNormal(TridiagonalNormalBase, Distribution):
    """A Normal whose neighbours in a chain through each event have correlation ρ, in O(n).

    Source: Posch and Pilz 2020.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (NumPyro's own convention)
    pytree_data_fields = ("loc", "scale", "correlation")
    pytree_aux_fields = ("order",)
    reparametrized_params = ["loc", "scale", "correlation"]  # noqa: RUF012

    def __init__(
        self, loc: jax.Array, scale: jax.Array, correlation: jax.Array, order: tridiagonal.Order
    ) -> None:
        shape = jnp.broadcast_shapes(jnp.shape(loc), jnp.shape(scale))
        self.loc, self.scale = jnp.broadcast_to(loc, shape), jnp.broadcast_to(scale, shape)
        self.correlation, self.order = correlation, order
        split = len(shape) - len(order.shape)
        super().__init__(shape[:split], shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def has_rsample(self) -> bool:
        """Return True: draws are differentiable in all parameters."""
        return True

    def expand(self, batch_shape: Sequence[int]) -> TridiagonalNormal:
        """Return the same distribution with another batch shape."""
        shape = tuple(batch_shape) + self.event_shape
        loc, scale = jnp.broadcast_to(self.loc, shape), jnp.broadcast_to(self.scale, shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Return reparameterised draws [*sample_shape, *batch, *event]."""
        loc, scale, correlation = self.chains
        noise = jax.random.normal(key, tuple(sample_shape) + loc.shape, loc.dtype)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))


class TridiagonalGuide(FixedSettings, DVIGuide):
    """Gaussian guide in which neighbouring elements of a site are correlated, in O(n).

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
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
        create_plates: optional function that makes the plates, as in NumPyro's guides.
        prefix: part of the parameters' names, as in NumPyro's guides.

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
        prefix: str = "auto",
    ) -> None:
        self.options = TridiagonalOptions(
            groups, scales, init_scale, correlation, learn_correlation
        )
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._design = SiteLayout({}, {}, frozenset())

    def _inspect_model(self, model: Callable, run: ModelTrace, args: tuple, kwargs: dict) -> None:
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
        """Declare the location, the scale of site or group, and ρ if it is learnt."""
        name = site.name
        if name not in self._design.groups:
            return super()._declare(site, initial)
        correlation = self._declare_correlation(self._design.groups[name])
        if name not in self._design.proportional_sites:
            return (*super()._declare(site, initial), *correlation)
        loc = numpyro.param(
            self._name(name, "loc"),
            lambda key: tridiagonal.without_tiny_means(initial(name)),
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
        sites = self._known_sites()
        return [(site, *(params[name] for name in self._names(site.name))) for site in sites]

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
        role = (group, "tau") if site in self._design.proportional_sites else (site, "scale")
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
        return tridiagonal.summarise_group(sites, [parts[site] for site in sites], float(rho))


def _order(site: dict, loc: jax.Array, axis: int) -> Order:
    """Return the order of the chain through a site; its inputs are on ``axis``."""
    event_dim = site["fn"].event_dim + jnp.ndim(loc) - jnp.ndim(site["value"])
    return chain_order(jnp.shape(loc), event_dim, axis)
