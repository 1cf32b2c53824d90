"""The oracle of the ELBO: Pyro's own estimate from many samples."""

import contextlib
import math

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from torch.distributions import (
    kl_divergence,
    lowrank_multivariate_normal,
    multivariate_normal,
    normal,
)


def trace_elbo(model, guide, *args, samples: int = 4000) -> tuple[float, float]:
    """Mean and standard error of Trace_ELBO's loss.

    Every particle is one draw of all latent sites: ``vmap`` over them needs no vectorisation of the
    model, but no validation either, which looks at values.
    """

    losses = _over_draws(_loss, model, guide, args, samples)
    return losses.mean().item(), losses.std().item() / math.sqrt(samples)


def posterior_predictive(model, guide, *args, samples: int) -> torch.Tensor:
    """Draws [n, ...] of the site obs, as Pyro's Predictive makes them."""
    return _over_draws(lambda _, trace: trace.nodes["obs"]["value"], model, guide, args, samples)


def _loss(drawn, replayed) -> torch.Tensor:
    density = drawn.log_prob_sum(lambda _, site: not site["is_observed"])
    return density - replayed.log_prob_sum()


def _over_draws(function, model, guide, args, samples: int) -> torch.Tensor:
    """A function of the traces of guide and model, for many draws."""

    def once(_) -> torch.Tensor:
        drawn = poutine.trace(guide).get_trace(*args)
        return function(drawn, poutine.trace(poutine.replay(model, trace=drawn)).get_trace(*args))

    with torch.no_grad(), pyro.validation_enabled(False), _drawn_afresh():
        return torch.vmap(once, randomness="different")(torch.zeros(samples))


@contextlib.contextmanager
def _drawn_afresh():
    """Let torch's normals make their noise by a function that ``vmap`` knows."""

    def noise(shape, dtype, device):
        return torch.randn(shape, dtype=dtype, device=device)

    with pytest.MonkeyPatch.context() as patch:
        for module in (normal, multivariate_normal, lowrank_multivariate_normal):
            patch.setattr(module, "_standard_normal", noise)
        yield


def train(model, guide, elbo, *args, steps: int = 100, learning_rate: float = 0.02) -> float:
    """Train with the elbo under test and return its loss."""
    svi = pyro.infer.SVI(model, guide, pyro.optim.Adam({"lr": learning_rate}), elbo)
    svi.step(*args)
    with pyro.validation_enabled(False):  # the first step has checked the program
        for _ in range(steps - 1):
            svi.step(*args)
    return svi.evaluate_loss(*args)


def assert_near(loss: float, estimate: tuple[float, float], share: float = 0.0, errors: float = 4):
    """The loss is the estimate, up to its standard errors and a share of it."""
    expected, error = estimate
    assert abs(loss - expected) < errors * error + share * abs(expected), (loss, estimate)


def gaussian_loss(design, y, noise: float, posterior, prior) -> float:
    """The loss of a linear regression under a Gaussian posterior of all coefficients."""
    variance = ((design @ posterior.covariance_matrix) * design).sum(-1)
    squared = (y - design @ posterior.mean) ** 2 + variance
    fit = dist.Normal(0.0, noise).log_prob(torch.zeros(())) - 0.5 * squared / noise**2
    return (kl_divergence(posterior, prior) - fit.sum()).item()


def vectorised_trace_elbo(
    model, guide, *args, plates: int = 1, batches: int = 10, draws: int = 1000
) -> tuple[float, float]:
    """The same by vectorised runs of many draws, whose plates are the last axes."""
    options = {"vectorize_particles": True, "max_plate_nesting": plates}
    elbo = Trace_ELBO(num_particles=draws, **options)
    with torch.no_grad():
        losses = torch.tensor([elbo.loss(model, guide, *args) for _ in range(batches)])
    return losses.mean().item(), losses.std().item() / math.sqrt(batches)
