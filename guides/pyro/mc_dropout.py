"""Define the dropout guide: every weight has a random mask over its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import constraints
from pyro.infer.autoguide.utils import deep_setattr
from pyro.nn import PyroModule, PyroParam
from torch.distributions import biject_to

from guides.families import mc_dropout
from guides.families.dropout_texts import (
    bounded_site_error,
)
from guides.families.latent_site import LatentSite
from guides.pyro.contractions import weights_of
from guides.pyro.dropped_weight import DroppedWeight
from guides.pyro.initialization import init_to_network
from guides.pyro.mean_field import DVIGuide
from guides.pyro.supports import is_real


class MCDropoutGuide(DVIGuide):
    """Dropout as a posterior: weights M diag(z) with a mask z of their inputs for every datum.

    Args:
        model: the Pyro model; by default that of the first evaluation.
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
        create_plates: optional function that makes the plates, as in Pyro's guides.

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
    ) -> None:
        options = mc_dropout.DropoutOptions(p, noise, others, learn_p, temperature)
        super().__init__(
            model, init_loc_fn=init_loc_fn, init_scale=init_scale, create_plates=create_plates
        )
        self.options = options
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

    def _inspect_model(
        self, model: Callable, sites: dict[str, dict], args: tuple, kwargs: dict
    ) -> None:
        self._weights = weights_of(model, sites, args, kwargs)
        self._rates = self.options.rates(self._weights.axes, sites)
        self.probs = PyroModule()
        for name in self._rates:
            if not is_real(sites[name]["fn"].support):
                raise bounded_site_error(name)

    def _add_scale_parameters(self, name: str, loc: torch.Tensor, event_dim: int) -> None:
        """Create the probability of a masked site if it is learnt, or the scale of a Gaussian."""
        if name not in self._rates:
            if self.options.others == "mean_field":
                super()._add_scale_parameters(name, loc, event_dim)
        elif self.options.learn_p:
            rate = PyroParam(_like(loc, self._rates[name]), constraints.unit_interval, 0)
            deep_setattr(self.probs, name, rate)

    def _has_scale(self, site: str) -> bool:
        return self.options.others == "mean_field" and site not in self._rates

    def _parameter_names(self, site: str) -> tuple[str, ...]:
        if self._has_scale(site):
            return super()._parameter_names(site)
        learnt = site in self._rates and self.options.learn_p
        return (f"locs.{site}", f"probs.{site}") if learnt else (f"locs.{site}",)

    def _posterior(
        self, site: LatentSite, loc: torch.Tensor, scale: Any = None
    ) -> dist.TorchDistribution:
        options = self.options
        if site.name in self._rates:
            p = _like(loc, self._rates[site.name]) if scale is None else scale
            design = options.design(site.name, site.event_dim, self._weights)
            return DroppedWeight(loc, p, design)
        if self._has_scale(site.name):
            return super()._posterior(site, loc, scale)
        value = biject_to(site.support)(loc)
        return dist.Delta(value, event_dim=site.event_dim + value.dim() - loc.dim())

    def median(self, *args: Any, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Return posterior medians by site name; for masked sites the mean M, as without dropout.

        Args:
            *args: ignored, as in Pyro's guides.
            **kwargs: ignored.
        """
        return super().median(*args, **kwargs)

    def _quantiles(self, site: LatentSite, quantiles: Sequence[float]) -> torch.Tensor:
        if self._has_scale(site.name):
            return super()._quantiles(site, quantiles)
        posterior: Any = self._posterior(site, *self._parameters_of(site.name))
        shape = posterior.batch_shape + posterior.event_shape
        options = {"dtype": posterior.mean.dtype, "device": posterior.mean.device}
        levels = torch.as_tensor(quantiles, **options).reshape((-1,) + (1,) * len(shape))
        levels = levels.expand(-1, *shape)
        masked = isinstance(posterior, DroppedWeight)
        return posterior.icdf(levels) if masked else posterior.v.expand(levels.shape)


def _like(loc: torch.Tensor, number: float) -> torch.Tensor:
    """Return a number as a scalar tensor of the dtype and device of ``loc``."""
    return torch.full((), number, dtype=loc.dtype, device=loc.device)
