"""Predictions by draws of the latent sites, or by their means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger

from moment_calculus.hosts.moments import Moments, moments_over
from pyro_moments.likelihoods.structure import of_particles, tensors_of
from pyro_moments.particles.noise import vectorised
from pyro_moments.particles.particle import Particle
from pyro_moments.particles.undrawn import drawn
from pyro_moments.prediction.sampled import SampledPrediction
from pyro_moments.sites.drawn import drawn_traces


def predicted_by_particles(
    program: tuple[Callable, Callable, tuple, dict],
    is_mean: bool,
    count: int,
    observing: Messenger,
    wanted: Callable[[dict[str, Any], frozenset[str]], dict[str, Any]],
) -> dict[str, Any]:
    """Predictions of the sites of a model by draws of its latent sites.

    Args:
        program: model, guide, their arguments and keyword arguments.
        is_mean: whether the means of the latent sites stand for draws.
        count: number of draws.
        observing: leaves sites without observations undrawn.
        wanted: from the model's sites and the names of latent ones to those that are predicted.
    """
    count = 1 if is_mean else count
    kinds: dict[str, Any] = {}
    with poutine.block():
        program[1](*program[2], **program[3])  # what the guide makes at its first call stays

    def particle(seed: int) -> dict[str, list[torch.Tensor]]:
        one = Particle(is_mean=is_mean, by_rows=False)
        model, guide = drawn_traces(one, *program, seed=seed, around=observing)
        samples = {n: site for n, site in model.nodes.items() if site["type"] == "sample"}
        sites = wanted(samples, frozenset(guide.stochastic_nodes))
        kinds.update({n: None if _is_value(site) else site["fn"] for n, site in sites.items()})
        return {
            name: [site["value"]] if _is_value(site) else list(map(drawn, tensors_of(site["fn"])))
            for name, site in sites.items()
        }

    found = vectorised(particle, count)
    return {
        name: _moments(parts[0])
        if kinds[name] is None
        else SampledPrediction(name, of_particles(kinds[name], parts, count))
        for name, parts in found.items()
    }


def _is_value(site: Any) -> bool:
    return bool((site["infer"] or {}).get("_deterministic"))


def _moments(draws: torch.Tensor) -> Moments:
    if len(draws) == 1:
        return Moments(draws[0], variance=torch.zeros_like(draws[0]))
    return moments_over(draws, full=False)
