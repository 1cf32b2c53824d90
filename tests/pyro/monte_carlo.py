"""The independent oracle of the ELBO: Pyro's own estimate from many vectorised samples."""

from __future__ import annotations

import math

import pyro
import torch
from pyro.infer import Trace_ELBO


def trace_elbo(model, guide, *args, samples: int = 4000) -> tuple[float, float]:
    """Mean and standard error of Trace_ELBO's loss.

    Every particle is one draw of all latent sites; draws are looped over, which needs no
    vectorisation of the model.
    """
    elbo = Trace_ELBO()
    with torch.no_grad():
        losses = torch.tensor([elbo.loss(model, guide, *args) for _ in range(samples)])
    return losses.mean().item(), losses.std().item() / math.sqrt(samples)


def train(model, guide, elbo, *args, steps: int = 150, learning_rate: float = 0.02) -> float:
    """Train with the elbo under test and return its loss."""
    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": learning_rate}), elbo)
    for _ in range(steps):
        svi.step(*args)
    return svi.evaluate_loss(*args)


def vectorised_trace_elbo(
    model, guide, *args, plates: int = 1, batches: int = 10, draws: int = 1000
) -> tuple[float, float]:
    """The same from one vectorised run for each batch of draws; the model has to allow it.

    Args:
        model: Pyro model whose operations keep leading dimensions.
        guide: its guide.
        *args: passed to both.
        plates: how many dimensions, from the right, the plates take.
        batches: number of runs.
        draws: draws of all latent sites in each.
    """
    options = {"vectorize_particles": True, "max_plate_nesting": plates}
    elbo = Trace_ELBO(num_particles=draws, **options)
    with torch.no_grad():
        losses = torch.tensor([elbo.loss(model, guide, *args) for _ in range(batches)])
    return losses.mean().item(), losses.std().item() / math.sqrt(batches)
