"""Define the dropout guide: every weight has a random mask over its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import biject_to, constraints

from guides.families import mc_dropout
from guides.families.latent_site import LatentSite
from guides.families.masked_wording import (
    DROPOUT_ERRORS,
    DROPOUT_OPTIONS,
    bounded_masked_site,
)
from guides.numpyro.contractions import weights_of
from guides.numpyro.dropped_weight import DroppedWeight
from guides.numpyro.initialization import init_to_network
from guides.numpyro.latent_sites import Run
from guides.numpyro.mean_field import DVIGuide
from guides.numpyro.supports import is_latent, is_real
from moment_calculus.hosts.docstrings import documented


@documented("NumPyro", errors=DROPOUT_ERRORS, options=DROPOUT_OPTIONS)
class MCDropoutGuide(DVIGuide):
    """Dropout as a posterior: weights M diag(z) with a mask z of their inputs for every datum.

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
        {options}
        prefix: part of the parameters' names, as in NumPyro's guides.

    {errors}
    """

    no_prior = "has no density"  # why prior=... raises an error

    def __init__(
        self,
        model: Callable | None = None,
        p: float | Mapping[str, float] = 0.1,
        *,
        noise: str = "bernoulli",
        others: str = "point",
        learn_p: bool = False,
        temperature: float = mc_dropout.TEMPERATURE,
        init_loc_fn: Callable = init_to_network,
        init_scale: float = 0.05,
        create_plates: Callable | None = None,
        prefix: str = "auto",
    ) -> None:
        self.options = mc_dropout.Options(p, noise, others, learn_p, temperature)
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._weights = mc_dropout.Weights({}, frozenset())
        self._rates: dict[str, float] = {}

    def fixed_settings(self) -> dict[str, Any]:
        """Return the settings of the posterior that are not parameters.

        A saved posterior can only be loaded into a guide with the same settings.
        """
        return self.options.fixed()

    @property
    def masked(self) -> dict[str, float]:
        """Return the dropout probability of every masked site; the initial one if it is learnt."""
        return dict(self._rates)

    def _look_at(self, model: Callable, run: Run, args: tuple, kwargs: dict) -> None:
        latent = {name: site for name, site in run.trace.items() if is_latent(site)}
        self._weights = weights_of(model, run.trace, args, kwargs)
        self._rates = self.options.rates(self._weights.axes, latent)
        for name in self._rates:
            if not is_real(latent[name]["fn"].support):
                raise bounded_masked_site(name)

    def _declare(
        self, site: LatentSite, initial: Callable[[str], jax.Array]
    ) -> tuple[jax.Array, Any]:
        """Declare the location, and the probability of a masked site or the scale of another."""
        if site.name not in self._rates and self.options.others == "mean_field":
            return super()._declare(site, initial)
        loc = numpyro.param(
            self._name(site.name, "loc"), lambda key: initial(site.name), event_dim=site.event_dim
        )
        rate = self._rates.get(site.name)
        if rate is None or not self.options.learn_p:
            return loc, rate
        learnt = numpyro.param(
            self._name(site.name, "p"), jnp.asarray(rate), constraint=constraints.unit_interval
        )
        return loc, learnt

    def _parameters(self, params: dict[str, jax.Array]) -> list[tuple[LatentSite, jax.Array, Any]]:
        second: dict[str, Any] = {
            self._name(site.name, "scale"): params.get(
                self._name(site.name, "p"), self._rates.get(site.name)
            )
            for site in self._sites or ()
        }
        return super()._parameters({**second, **params})

    def _posterior(self, site: LatentSite, loc: jax.Array, scale: Any) -> dist.Distribution:
        options = self.options
        if site.name in self._rates:
            design = options.design(site.name, site.event_dim, self._weights)
            return DroppedWeight(loc, scale, design)
        if options.others == "mean_field":
            return super()._posterior(site, loc, scale)
        value = biject_to(site.support)(loc)
        event_dim = site.event_dim + jnp.ndim(value) - jnp.ndim(loc)
        return dist.Delta(value, event_dim=event_dim)

    def median(self, params: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Return posterior medians by site name; for masked sites the mean M, as without dropout.

        Args:
            params: parameters, as ``svi.get_params`` gives them.
        """
        return super().median(params)

    def quantiles(
        self, params: dict[str, jax.Array], quantiles: Sequence[float]
    ) -> dict[str, jax.Array]:
        """Return posterior quantiles of every element.

        Args:
            params: parameters, as ``svi.get_params`` gives them.
            quantiles: probabilities between 0 and 1.

        Returns:
            Arrays [len(quantiles), ...] by site name, on the sites' supports.
        """
        mean_field = self.options.others == "mean_field"
        found = super().quantiles(params, quantiles) if mean_field else {}
        for name, posterior in self.get_posterior(params).items():
            if name in self._rates or not mean_field:
                found[name] = _quantiles(posterior, quantiles)
        return found


def _quantiles(posterior: Any, quantiles: Sequence[float]) -> jax.Array:
    shape = posterior.shape()
    levels = jnp.asarray(quantiles).reshape((-1,) + (1,) * len(shape))
    levels = jnp.broadcast_to(levels, (len(levels), *shape))
    if isinstance(posterior, DroppedWeight):
        return posterior.icdf(levels)
    return jnp.broadcast_to(posterior.v, levels.shape)
