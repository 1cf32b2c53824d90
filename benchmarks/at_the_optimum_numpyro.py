"""Losses at the optimum in NumPyro."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from at_the_optimum_models import Host
from numpyro.infer import init_to_value

import numpyro_moments
from numpyro_moments.fitting.by_draws import QUICK
from numpyro_moments.objectives.base import Program


def looks(
    objective: Any, model: Any, fit: Any, data: tuple, count: int, times: int
) -> list[tuple[np.ndarray, ...]]:
    """So many times so many particles, compiled once."""
    drawn, program = objective.by_draws(count), Program(model, fit.guide, data, {}, fit.params)
    terms = jax.jit(lambda key: drawn.particle_terms(key, program)[0], compiler_options=QUICK)
    keys = jax.random.split(jax.random.key(1), times)
    return [tuple(np.asarray(part, np.float64) for part in terms(key)) for key in keys]


def start(values: dict[str, Any]) -> Any:
    """Initial locations of a guide."""
    return init_to_value(values=values)


NUMERICS = SimpleNamespace(exp=jnp.exp, relu=jax.nn.relu)
HOST = Host(numpyro_moments, numpyro, dist, NUMERICS, jnp.asarray, start, looks, jax.clear_caches)
