"""Run a guide and a model with draws of the latent sites, or with their means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.poutine import Trace
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample
from torch.overrides import TorchFunctionMode

from moment_calculus import errors
from moment_calculus.predictions import Moments
from moment_calculus.values import Propagation
from moment_inference import MaskedSite, SharedDrawNeeded
from moment_inference.objectives import data_plates
from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.evaluation.uncertain_inputs import at_means, drawn
from pyro_moments.likelihoods.structure import tensors_of
from pyro_moments.particles import lazy_rules as _later  # noqa: F401  (registers the functions)
from pyro_moments.particles.noise import draw_by_gammas
from pyro_moments.particles.undrawn import (
    Particle,
    Rows,
    Undrawn,
    draw_all,
    sites_of_rows,
    without_rows,
)
from pyro_moments.rules.elementwise.dropout import DRAWING_RULES
from pyro_moments.sites.messenger import (
    LatentSlice,
    LatentVector,
    MomentMessenger,
    latent_slices,
    model_site,
)
from pyro_moments.sites.random_watch import GeneratorWatch, run_watched
from pyro_moments.sites.terms import (
    dropout_posterior,
    gaussian_base,
    value_at_mean,
    without_wrappers,
)
from pyro_moments.sites.traces import check_masked_rows, is_observation, run_both


class SharedSubsamples(Messenger):
    """Draws subsamples with a seed, so that particles under vmap share them; None: as Pyro does."""

    def __init__(self, seed: int | None) -> None:
        super().__init__()
        self.indices = None if seed is None else np.random.default_rng(seed)

    def _pyro_sample(self, msg: Any) -> None:
        fn = msg["fn"]
        if self.indices is None or msg["value"] is not None or not site_is_subsample(msg):
            return
        if fn.subsample_size is not None and fn.subsample_size < fn.size:  # None: of all elements
            chosen = self.indices.permutation(fn.size)[: fn.subsample_size]
            msg["value"], msg["done"] = torch.from_numpy(chosen).to(fn.device), True

    def input_value(self, name: str, moments: Moments) -> torch.Tensor:
        """Draw an uncertain argument."""
        return drawn(name, moments)


class PyroDraws(SharedSubsamples):
    """Draws latent sites as Pyro does, but Beta and Dirichlet in a way that vmap supports."""

    def _pyro_sample(self, msg: Any) -> None:
        super()._pyro_sample(msg)
        if msg["value"] is None and not msg["is_observed"] and not site_is_subsample(msg):
            msg["value"] = draw_by_gammas(msg["fn"])
            msg["done"] = msg["value"] is not None


class DrawingMessenger(SharedSubsamples):
    """Gives latent sites a draw; Normal ones a value that is drawn as late as possible.

    It has to be the outermost handler of the guide, so that it sees the site's
    distribution after plates have expanded it. Latent vectors of Pyro's automatic guides
    are looked up in the guide.
    """

    def __init__(self, particle: Particle, guide: Any, seed: int | None = None) -> None:
        super().__init__(seed)
        self.particle, self.guide = particle, guide

    def _pyro_sample(self, msg: Any) -> None:
        super()._pyro_sample(msg)
        if msg["is_observed"] or msg["done"] or msg["value"] is not None or site_is_subsample(msg):
            return
        if not isinstance(without_wrappers(msg["fn"]), dist.Delta):
            value = self._value(msg, model_site(msg), msg["fn"])
            msg["value"], msg["done"] = value, value is not None

    def input_value(self, name: str, moments: Moments) -> torch.Tensor:
        """Draw an uncertain argument, or return its mean."""
        return moments.mean if self.particle.is_mean else drawn(name, moments)

    def _value(self, msg: Any, name: str, fn: Any) -> Any:
        if (dropped := dropout_posterior(fn)) is not None:
            return Undrawn(self.particle.masked_site(name, dropped))
        base, transforms = gaussian_base(fn)
        if base is not None and not transforms:
            slices = latent_slices(self.guide, name) if msg["infer"].get("is_auxiliary") else ()
            if slices:
                return LatentVector(fn, slices, self._draw_slice)
            shape = fn.batch_shape + fn.event_shape
            loc, scale = (draw_all(part.expand(shape)) for part in (base.loc, base.scale))
            return Undrawn(self.particle.site(name, loc, scale))
        if self.particle.is_mean:
            return value_at_mean(name, fn)
        if not fn.has_rsample:
            raise errors.not_reparameterised(
                name, without_wrappers(fn), framework="Pyro", by_name=False
            )
        return draw_by_gammas(fn)  # None: Pyro draws it

    def _draw_slice(self, site_slice: LatentSlice, loc: torch.Tensor, scale: torch.Tensor) -> Any:
        return Undrawn(self.particle.site(site_slice.name, loc, scale))


def drawn_traces(
    particle: Particle,
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict,
    seed: int | None = None,  # seed of the subsamples
    # Around the model alone, for predictions without log_prob.
    model_handler: Messenger | None = None,
    # Finds the plates of the data, whose rows may have their own noise; by default any
    # axis may.
    data: Callable[[Trace], data_plates.DataPlates] | None = None,
) -> tuple[Trace, Trace]:
    """Run guide and model as Pyro's ELBOs do, with Normal sites drawn late; return both traces.

    Observed sites get their ``log_prob`` [*batch]. A Normal latent site gets the moments
    of its posterior as value, and what draws it as ``undrawn``. SharedDrawNeeded is
    raised if sites have to be drawn once for all rows.
    """
    messenger = DrawingMessenger(particle, guide, seed)
    with pyro.validation_enabled(False):
        run_model = _run_at_means if particle.is_mean else run_unwatched
        traces = run_both(messenger, model, guide, args, kwargs, run_model, model_handler)
        check_masked_rows(traces[0].nodes, traces[1].nodes)
        dims = None if data is None else frozenset(data(traces[0]).dims)
        for trace in traces:
            for site in trace.nodes.values():
                _finish_site(site, model_handler is None, dims)
    if particle.is_mean and model_handler is None:
        return _with_moments(traces[0], guide, args, kwargs, seed)
    return traces


def _with_moments(
    model_trace: Trace, guide: Callable, args: tuple, kwargs: dict, seed: int | None
) -> tuple[Trace, Trace]:
    """Return traces at means, with the posterior's moments for latent sites."""
    # Divergences are those of the posterior, whatever value the model has computed with.
    with MomentMessenger(Propagation(), guide=guide), SharedSubsamples(seed):
        args, kwargs = at_means(args, kwargs)
        guide_trace = prune_subsample_sites(poutine.trace(guide).get_trace(*args, **kwargs))
    for name, site in guide_trace.nodes.items():
        if site["type"] != "sample" or dropout_posterior(site["fn"]) is not None:
            continue  # the terms of masked sites do not need a value
        if name in model_trace.nodes:
            model_trace.nodes[name]["value"] = site["value"]
    return model_trace, guide_trace


class _MeansOfNoise(TorchFunctionMode):
    """Replaces what dropout and stochastic units draw by its mean."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        rule = DRAWING_RULES.get(func)
        return (func if rule is None else rule.at_mean)(*args, **kwargs)


def _run_at_means(program: Callable[[], Any]) -> Any:
    """Run a program at means, and raise if it draws random numbers."""
    with _MeansOfNoise():
        return run_watched(GeneratorWatch(), program, Propagation(), program)


def run_unwatched(program: Callable[[], Any]) -> Any:
    """Run a program that may draw random numbers."""
    return program()


def _finish_site(site: Any, scored: bool, dims: frozenset[int] | None) -> None:
    """Set a site's value to moments or a plain tensor, and its ``log_prob`` if it is scored."""
    if site["type"] != "sample":
        return
    value = site["value"]
    if isinstance(value, Undrawn) and isinstance(value.site, MaskedSite):
        site["value"] = value.site.loc  # its terms do not need its value
    elif isinstance(value, Undrawn) and not site["is_observed"]:
        site["undrawn"], site["value"] = value, MomentTensor(value.site.moments())
    elif not isinstance(value, LatentVector):
        site["value"] = without_rows(draw_all(value))
    if not is_observation(site):
        if sites := sites_of_rows(tensors_of(site["fn"])):
            raise SharedDrawNeeded(sites)
    elif scored:
        site["log_prob"] = _terms(draw_all(site["fn"].log_prob(site["value"])), dims)


def _terms(terms: Any, dims: frozenset[int] | None) -> torch.Tensor:
    """Return an observed site's log-density; raise SharedDrawNeeded for rows that are no data."""
    if isinstance(terms, Rows) and dims is not None and terms.axis not in dims:
        raise SharedDrawNeeded(terms.sites)
    return without_rows(terms)


def data_log_prob(site: Any) -> torch.Tensor:
    """Return the unscaled log-density of an observed site, zero where masked."""
    return scale_and_mask(site["log_prob"], 1.0, site["mask"])
