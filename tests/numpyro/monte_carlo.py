"""The independent oracle of the ELBO: NumPyro's own estimate from many vectorised samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from numpyro.infer import Trace_ELBO
from numpyro.optim import Adam

from numpyro_moments import SVI


def trace_elbo(
    model: Callable, guide: Callable, params: dict, *args: Any, samples: int = 4000
) -> tuple[float, float]:
    """Mean and standard error of Trace_ELBO's loss, from one draw of all sites each."""
    elbo = Trace_ELBO()

    @jax.jit
    @jax.vmap
    def loss(key):
        return elbo.loss(key, params, model, guide, *args)

    losses = np.asarray(loss(jax.random.split(jax.random.key(7), samples)), np.float64)
    return losses.mean(), losses.std() / math.sqrt(samples)


def train(
    model: Callable,
    guide: Callable,
    elbo: Any,
    *args: Any,
    steps: int = 150,
    learning_rate: float = 0.02,
) -> tuple[float, dict[str, Any]]:
    """Train with the elbo under test; its last loss and the parameters."""
    svi = SVI(model, guide, Adam(learning_rate), elbo)
    result = svi.run(jax.random.key(0), steps, *args, progress_bar=False)
    return float(svi.evaluate(result.state, *args)), result.params
