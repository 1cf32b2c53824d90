"""Twelve models in NumPyro: training, and both ELBOs of what was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from models_numpyro import twelve_models
from numpyro.infer import Trace_ELBO

from numpyro_moments import SVI, DeterministicELBO, DVIGuide

__all__ = ["losses", "twelve_models"]


def losses(
    model: Callable, data: tuple[Any, ...], *, samples: int, steps: int
) -> tuple[float, np.ndarray]:
    """Closed-form loss after training, and Trace_ELBO's loss for each draw [samples]."""
    guide = DVIGuide()
    svi = SVI(model, guide, DeterministicELBO())
    trained = svi.run(jax.random.key(0), steps, *data, progress_bar=False)

    @jax.jit
    @jax.vmap
    def sampled(key: jax.Array) -> jax.Array:
        return Trace_ELBO().loss(key, trained.params, model, guide, *data)

    draws = sampled(jax.random.split(jax.random.key(1), samples))
    return float(jax.jit(svi.evaluate)(trained.state, *data)), np.asarray(draws, np.float64)
