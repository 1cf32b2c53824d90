"""Predict sites by draws of the latent sites, or by their means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger

from moment_calculus.predictions.moments import moments_of_draws
from pyro_moments.likelihoods.structure import tensors_of, with_particle_axis
from pyro_moments.particles.noise import VmapRunner
from pyro_moments.particles.site import Particle, SharedDrawNeeded
from pyro_moments.particles.undrawn import draw_all, without_rows
from pyro_moments.prediction.sampled import SampledPrediction
from pyro_moments.sites.drawn_traces import drawn_traces
from pyro_moments.sites.traces import is_sample


def predict_by_particles(
    program: tuple[Callable, Callable, tuple, dict],
    is_mean: bool,  # whether the means of the latent sites replace draws
    count: int,
    undrawn: Messenger,  # leaves sites without observations undrawn
    # From the model's sites and the names of latent ones to the sites that are predicted.
    wanted: Callable[[dict[str, Any], frozenset[str]], dict[str, Any]],
) -> dict[str, Any]:
    """Return the predictions of a model's sites by draws of its latent sites."""
    count = 1 if is_mean else count
    kinds: dict[str, Any] = {}
    with poutine.block():
        program[1](*program[2], **program[3])  # the guide makes its parameters outside vmap

    def particle(seed: int) -> dict[str, list[torch.Tensor]]:
        particle_settings = Particle(shared_draws, is_mean, by_rows=False)
        model, guide = drawn_traces(particle_settings, *program, seed=seed, model_handler=undrawn)
        samples = {n: site for n, site in model.nodes.items() if site["type"] == "sample"}
        sites = wanted(samples, frozenset(guide.stochastic_nodes))
        kinds.update({n: site["fn"] if is_sample(site) else None for n, site in sites.items()})
        return {
            name: list(map(_plain, tensors_of(site["fn"]))) if is_sample(site) else [site["value"]]
            for name, site in sites.items()
        }

    shared_draws: frozenset[str] = frozenset()
    while True:
        try:
            parameters = VmapRunner()(particle, count)
            break
        except SharedDrawNeeded as error:
            shared_draws |= error.sites
    return {
        name: moments_of_draws(parts[0], full=False)
        if kinds[name] is None
        else SampledPrediction(name, with_particle_axis(kinds[name], parts, count))
        for name, parts in parameters.items()
    }


def _plain(part: Any) -> torch.Tensor:
    return without_rows(draw_all(part))
