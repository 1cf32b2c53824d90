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
from guides.families.dropout_texts import (
    bounded_site_error,
)
from guides.families.latent_site import LatentSite
from guides.numpyro.contractions import weights_of
from guides.numpyro.dropped_weight import DroppedWeight
from guides.numpyro.initialization import init_to_network
from guides.numpyro.latent_sites import ModelTrace
from guides.numpyro.mean_field import DVIGuide
from guides.numpyro.supports import is_latent, is_real


class MCDropoutGuide(DVIGuide):
    """Dropout as a posterior: weights M diag(z) with a mask z of their inputs for every datum.

    Args:
        model: the NumPyro model; by default that of the first ``SVI``.
        p: probability to drop an input, as in the host's dropout layers: of all weights
            that the model contracts with an input, or of sites by name.
        noise: ``"bernoulli"``, ``"gaussian"`` (of the same mean and variance), or
            ``"dropconnect"``, a Bernoulli mask for each weight.
        others: what the sites are that are not masked, biases among them: ``"point"``
            estimates, or Gaussian, ``"mean_field"``.
        learn_p: whether the probabilities are parameters, one for each masked site, that
            begin at ``p``; the entropy of the masks is then part of the divergence.
        temperature: of the relaxed masks that are drawn where the probabilities are
            learnt.
        init_loc_fn: initial locations, a function of a site.
        init_scale: initial standard deviations, where ``others="mean_field"``.
        create_plates: optional function that makes the plates, as in NumPyro's guides.
        prefix: part of the parameters' names, as in NumPyro's guides.

    Noise is inverted: M is the mean of q. Which sites are weights, and on which axis
    their inputs are, is found in a run of the model: a site is one if a linear map
    (``F.linear``, ``x @ w``, an Einstein sum) contracts it along one axis; a kernel of a
    convolution is none. Every datum has a mask of its own: the rows of the inputs are
    elements of the plates around what is observed (or, without a plate, of its axes), and
    other rows, or more than one axis of them, are refused.

    Functions of a map of at most three certain inputs are summed over all of their masks,
    exactly where covariances are full; a map of more inputs, or of random ones, is taken
    as Gaussian.

    The divergence from Normal priors N(0, λ) is ‖M‖²/(2kλ) for every masked site, k = 1 −
    p, but for a constant, as a discrete q has none. Priors of which the scale is learnt
    or random, and others than Normal ones, enter by E_q[log p], exactly.

    A guide by dropout has no density: ELBOs by log densities refuse it. Draws of the host
    (``sample_posterior``, ``Predictive``, ``sample_sites``) have one mask for all rows:
    each row is right, what mixes rows is not. ``propagation="sampled"`` draws a mask for
    each row, the same in all maps of one site.

    Raises:
        ValueError: if an option is unknown, or ``p``, ``init_scale`` or ``temperature``
            out of range.
        RuntimeError: when called without having met a model.
        UnsupportedMoments: when called, if there is no site to mask, or ``p`` names one
            that is none.

    Source: Gal and Ghahramani 2016; Li and Gal 2017, sections 2.3 and 3.

    Example:
        >>> guide = MCDropoutGuide(p=0.2)
    """

    why_no_prior = "has no density"  # why prior=... raises an error

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
        self.options = mc_dropout.DropoutOptions(p, noise, others, learn_p, temperature)
        super().__init__(
            model,
            init_loc_fn=init_loc_fn,
            init_scale=init_scale,
            create_plates=create_plates,
            prefix=prefix,
        )
        self._weights = mc_dropout.WeightSites({}, frozenset())
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

    def _inspect_model(self, model: Callable, run: ModelTrace, args: tuple, kwargs: dict) -> None:
        latent = {name: site for name, site in run.trace.items() if is_latent(site)}
        self._weights = weights_of(model, run.trace, args, kwargs)
        self._rates = self.options.rates(self._weights.axes, latent)
        for name in self._rates:
            if not is_real(latent[name]["fn"].support):
                raise bounded_site_error(name)

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
        result = super().quantiles(params, quantiles) if mean_field else {}
        for name, posterior in self.get_posterior(params).items():
            if name in self._rates or not mean_field:
                result[name] = _quantiles(posterior, quantiles)
        return result


def _quantiles(posterior: Any, quantiles: Sequence[float]) -> jax.Array:
    shape = posterior.shape()
    levels = jnp.asarray(quantiles).reshape((-1,) + (1,) * len(shape))
    levels = jnp.broadcast_to(levels, (len(levels), *shape))
    if isinstance(posterior, DroppedWeight):
        return posterior.icdf(levels)
    return jnp.broadcast_to(posterior.v, levels.shape)
