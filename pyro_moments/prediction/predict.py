"""Predict what a model observes: moments and log density, in closed form or by draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites, site_is_subsample

from guides.families.drawn_sites import with_shared_draws
from moment_calculus.likelihoods.classes import PREDICTIVE_RULES
from moment_calculus.objectives.options import check_particles
from moment_calculus.predictions.moments import Moments, moments_of_draws, moments_of_value
from moment_calculus.predictions.site import at_site, summed_log_density
from moment_calculus.rulebooks import propagation_of
from moment_calculus.values.propagation import Propagation, RuleBook, check_choice
from pyro_moments.evaluation.failure_causes import diagnose_errors
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.structure import tensors_of, with_particle_axis
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.particles.undrawn import Particle, draw_all, without_rows
from pyro_moments.prediction.prediction import Prediction, SampledPrediction
from pyro_moments.sites.drawn_traces import drawn_traces
from pyro_moments.sites.messenger import MomentMessenger
from pyro_moments.sites.random_watch import run_watched
from pyro_moments.sites.traces import bind, check_masked_rows, is_factor, is_sample


def predict_by_particles(
    program: tuple[Callable, Callable, tuple, dict],
    is_mean: bool,  # whether the means of the latent sites replace draws
    count: int,
) -> dict[str, Any]:
    """Return the predictions of a model's sites by draws of its latent sites."""
    count = 1 if is_mean else count
    kinds: dict[str, Any] = {}
    with poutine.block():
        program[1](*program[2], **program[3])  # the guide makes its parameters outside vmap

    def particle(shared_draws: frozenset[str], seed: int) -> dict[str, list[torch.Tensor]]:
        settings, undrawn = Particle(shared_draws, is_mean, by_rows=False), LeaveUndrawn()
        model, guide = drawn_traces(settings, *program, seed=seed, model_handler=undrawn)
        samples = {n: site for n, site in model.nodes.items() if site["type"] == "sample"}
        sites = sites_to_predict(samples, frozenset(guide.stochastic_nodes))
        kinds.update({n: site["fn"] if is_sample(site) else None for n, site in sites.items()})
        return {
            name: [without_rows(draw_all(part)) for part in tensors_of(site["fn"])]
            if is_sample(site)
            else [site["value"]]
            for name, site in sites.items()
        }

    parameters = with_shared_draws(lambda shared: VmapRunner()(partial(particle, shared), count))
    return {
        name: moments_of_draws(parts[0], full=False)
        if kinds[name] is None
        else SampledPrediction(name, with_particle_axis(kinds[name], parts, count))
        for name, parts in parameters.items()
    }


class LeaveUndrawn(Messenger):
    """Leaves sites without observations undrawn; their value is a placeholder of NaNs."""

    def __init__(self, latent: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.latent = latent

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.latent or msg["done"] or site_is_subsample(msg):
            return
        if msg["value"] is None:
            shape = msg["fn"].batch_shape + msg["fn"].event_shape
            msg["value"], msg["done"] = torch.full(shape, torch.nan), True


@torch.no_grad()
def predict(
    model: Callable,
    guide: Callable,
    *args: Any,
    covariance: str = "full",
    rules: str | RuleBook = "exact",
    propagation: str = "analytic",
    num_particles: int = 100,
    categorical: str = "points",
    **kwargs: Any,
) -> dict[str, Prediction | SampledPrediction | Moments]:
    """Predict what the model observes, in closed form and one pass, or by draws.

    Args:
        model: Pyro model.
        guide: trained guide with Gaussian sites.
        *args: the model's arguments, with new inputs and, usually, without observations.
        covariance: ``"full"`` or ``"diagonal"``.
        rules: rule book: ``"exact"``, ``"dvi"``, ``"first_order"``, or one of your own.
        propagation: ``"analytic"``, ``"sampled"`` or ``"mean"``.
        num_particles: number of draws of the latent sites with ``propagation="sampled"``.
        categorical: rule for classes, ``"points"`` or ``"pairs"``.
        **kwargs: the model's keyword arguments.

    Returns:
        A :class:`Prediction` for every site that is not latent: ``mean``,
        ``epistemic_variance`` (of the location), ``aleatoric_variance`` (of the noise),
        ``variance``, ``log_prob``, ``quantile`` and ``interval``, ``probs`` and
        ``variation_ratio`` of classes, ``entropy`` and ``mutual_information``,
        ``credible_interval`` of the mean, and ``sample``;
        :class:`~moment_calculus.predictions.moments.Moments` for every deterministic site.

    Raises:
        UnsupportedMoments: if the model leaves the supported operations, a site's
            distribution has no predictive moments, or the model draws random numbers that
            belong to no site.

    Source: Wu et al. 2019, eq. 9; classes by points, see ``categorical``.
    """
    check_particles(propagation, num_particles)
    check_choice("categorical", categorical, PREDICTIVE_RULES)
    settings = propagation_of(covariance, rules, categorical)
    if propagation != "analytic":
        bind(guide, model)
        program, is_mean = (model, guide, args, kwargs), propagation == "mean"
        return predict_by_particles(program, is_mean, num_particles)
    sites = sites_to_predict(*moment_trace(model, guide, args, kwargs, settings))
    with full_precision():
        return {name: prediction_at(name, site) for name, site in sites.items()}


@torch.no_grad()
def log_predictive(
    propagation: Propagation | None, model: Callable, guide: Callable, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Return the summed log predictive densities of all observations."""
    propagation = propagation or propagation_of("full", "exact")
    sites = sites_to_predict(*moment_trace(model, guide, args, kwargs, propagation))
    observed = {
        name: site
        for name, site in sites.items()
        if site["is_observed"] and not is_deterministic(site)
    }
    with full_precision():
        return summed_log_density(observed, prediction_at)


def moment_trace(
    model: Callable,
    guide: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    propagation: Propagation,
    messenger: MomentMessenger | None = None,  # of latent sites
    watch: Callable[..., Any] = run_watched,  # runs the model
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return a model's sites, with moments for latent ones, and the names of the latent ones.

    Sites without observations are not drawn.
    """
    bind(guide, model)
    messenger = messenger or MomentMessenger(propagation, guide=guide)
    with diagnose_errors(model, args, kwargs), messenger:
        guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
        latent = frozenset(guide_trace.stochastic_nodes)
        with LeaveUndrawn(latent):
            replayed = poutine.replay(model, trace=guide_trace)
            program = partial(poutine.trace(replayed).get_trace, *args, **kwargs)
            trace = watch(messenger.draws, program, propagation, model)
    nodes = prune_subsample_sites(trace).nodes.items()
    sites = {name: site for name, site in nodes if site["type"] == "sample"}
    check_masked_rows(sites, latent)
    return sites, latent


def sites_to_predict(sites: dict[str, Any], latent: frozenset[str]) -> dict[str, Any]:
    """Return the sites of a trace that are neither latent nor factors."""
    return {
        name: site for name, site in sites.items() if name not in latent and not is_factor(site)
    }


def is_deterministic(site: Any) -> bool:
    """Return whether a site of a trace is a ``pyro.deterministic``."""
    return bool((site["infer"] or {}).get("_deterministic"))


def prediction_at(name: str, site: Any) -> Any:
    """Return the prediction of a site, or the moments of a deterministic one."""
    if is_deterministic(site):
        return moments_of_value(unwrap(site["value"]))
    return at_site(Prediction, name, site)
