"""Training of a network of heteroscedastic regression in Pyro, some updates at a time."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal, init_to_value
from pyro.infer.elbo import ELBO
from pyro.optim import Adam
from time_to_accuracy_data import BATCH, HIDDEN, PRIORS, Posterior, Split
from torch import Tensor

from pyro_moments import DeterministicELBO, DVIGuide, EmpiricalBayesNormal

torch.set_num_threads(1)
pyro.settings.set(module_local_params=True)


def normal(shape: list[int]) -> dist.Distribution:
    return dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape))


PRIOR_OF = dict(zip(PRIORS, (partial(EmpiricalBayesNormal, alpha=1, beta=10), normal), strict=True))


def layer(prior: Callable, place: int, x: Tensor, units: int) -> Tensor:
    weight = pyro.sample(f"weight{place}", prior([x.shape[-1], units]))
    return x @ weight + pyro.sample(f"bias{place}", prior([units]))


def network(prior: Callable, weight: float, x: Tensor, y: Tensor) -> None:
    """Each row stands for several."""
    out = layer(prior, 1, torch.relu(layer(prior, 0, x, HIDDEN)), 2)
    with pyro.plate("data", len(x)), pyro.poutine.scale(scale=weight):
        pyro.sample("obs", dist.Normal(out[..., 0], torch.exp(0.5 * out[..., 1])), obs=y)


class Training:
    """A network that is being trained."""

    def __init__(self, contender: str, split: Split, rate: float, options: Namespace) -> None:
        pyro.set_rng_seed(split.number)
        self.x, self.y = torch.as_tensor(split.x), torch.as_tensor(split.y)
        values = {name: torch.as_tensor(value) for name, value in split.start().items()}
        model = partial(network, PRIOR_OF[options.prior], split.weight)
        start = {"init_loc_fn": init_to_value(values=values), "init_scale": options.start}
        elbo = objective(contender)
        guide = DVIGuide if isinstance(elbo, DeterministicELBO) else AutoNormal
        self.guide = guide(model, **start)
        elbo.loss_and_grads(model, self.guide, self.x[:BATCH], self.y[:BATCH])  # compiles
        self.guide.zero_grad()
        self.svi = SVI(model, self.guide, Adam({"lr": rate}), elbo)

    def advance(self, batches: np.ndarray) -> None:
        for rows in torch.as_tensor(batches):
            self.svi.step(self.x[rows], self.y[rows])

    @torch.no_grad()
    def posterior(self) -> Posterior:
        locs, scales = self.guide.locs, self.guide.scales
        names = ("weight0", "bias0", "weight1", "bias1")
        return {
            name: (getattr(locs, name).numpy(), getattr(scales, name).numpy()) for name in names
        }


def objective(contender: str) -> ELBO:
    covariance, _, compiled = contender.partition(", ")
    if covariance in ("full", "diagonal"):
        return DeterministicELBO(covariance=covariance, compiled=bool(compiled))
    return TraceMeanField_ELBO()
