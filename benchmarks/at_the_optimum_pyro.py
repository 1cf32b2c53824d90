"""Losses at the optimum in Pyro."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from at_the_optimum_models import Host
from pyro.infer.autoguide.initialization import init_to_value

import pyro_moments
from pyro_moments.objectives.particles import Program


def looks(
    objective: Any, model: Any, fit: Any, data: tuple, count: int, times: int
) -> list[tuple[np.ndarray, ...]]:
    """So many times so many particles."""
    drawn, program = objective.by_draws(count), Program(model, fit.guide, data, {})
    with torch.no_grad():
        terms = [drawn.particle_terms(program) for _ in range(times)]
    return [tuple(part.double().numpy() for part in one) for one in terms]


def fresh() -> None:
    """Forget the parameters of earlier fits."""
    torch.set_num_threads(1)
    pyro.clear_param_store()
    pyro.set_rng_seed(0)


def start(values: dict[str, Any]) -> Any:
    """Initial locations of a guide."""
    return init_to_value(values=values)


HOST = Host(pyro_moments, pyro, dist, torch, torch.tensor, start, looks, fresh)
