"""Twelve models in Pyro: training, and both ELBOs of what was trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyro
import torch
from models_pyro import twelve_models
from pyro.infer import Trace_ELBO

from pyro_moments import SVI, DeterministicELBO, DVIGuide

__all__ = ["losses", "twelve_models"]


def losses(
    model: Callable, data: tuple[Any, ...], *, samples: int, steps: int
) -> tuple[float, np.ndarray]:
    """Closed-form loss after training, and Trace_ELBO's loss for each draw [samples]."""
    torch.set_num_threads(1)
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide, elbo = DVIGuide(), DeterministicELBO()
    svi = SVI(model, guide, elbo)
    svi.step(*data)
    sampled = Trace_ELBO()
    with pyro.validation_enabled(False):  # the first step has checked the program
        for _ in range(steps - 1):
            svi.step(*data)
        with torch.no_grad():
            draws = np.array([sampled.loss(model, guide, *data) for _ in range(samples)])
    return elbo.loss(model, guide, *data), draws
