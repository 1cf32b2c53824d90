"""The network of the regression examples in Pyro: model, guide, training and predictions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from regression import FAMILIES, Schedule, Split, groups_of
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR

from pyro_moments import (
    DeterministicELBO,
    DVIGuide,
    EmpiricalBayesNormal,
    Fit,
    TridiagonalGuide,
    fit,
    predict,
)


class HeteroscedasticNetwork(PyroModule):
    """One hidden ReLU layer and two outputs: the location and the log variance of the noise.

    Every weight matrix and bias vector has an empirical-Bayes prior of its own.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = bayesian_linear(inputs, hidden)
        self.output = bayesian_linear(hidden, 2)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        out = self.output(torch.relu(self.hidden(x)))
        loc, scale = out[..., 0], torch.exp(0.5 * out[..., 1])
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(loc, scale), obs=y)


def bayesian_linear(inputs: int, outputs: int) -> PyroModule:
    layer = PyroModule[nn.Linear](inputs, outputs)
    layer.weight = PyroSample(EmpiricalBayesNormal([outputs, inputs], alpha=1, beta=10))
    layer.bias = PyroSample(EmpiricalBayesNormal([outputs], alpha=1, beta=10))
    return layer


def init_with_spread_kinks(site: dict) -> Tensor:
    """He's initial weights, and random hidden biases: ReLUs that start with their kinks all at
    zero keep the network nearly linear until the noise has absorbed what it cannot fit."""
    shape = site["fn"].event_shape
    scale = {"hidden.bias": 1.0, "output.bias": 0.0}.get(site["name"], (2 / shape[-1]) ** 0.5)
    return scale * torch.randn(shape)


def make_guide(model: PyroModule, family: str = "mean field") -> DVIGuide:
    """A posterior that starts almost certain: noise in the weights hides the data at first."""
    start, options = {"init_loc_fn": init_with_spread_kinks, "init_scale": 0.01}, FAMILIES[family]
    if options is None:
        return DVIGuide(model, **start)
    return TridiagonalGuide(model, **start, **options)


METHODS = {
    "dvi": lambda: DeterministicELBO(covariance="full"),
    "ddvi": lambda: DeterministicELBO(covariance="diagonal"),
    "mcvi": lambda: TraceMeanField_ELBO(num_particles=10),
}


def train_and_predict(
    split: Split,
    method: str,
    family: str,
    hidden: int,
    schedule: Schedule,
    progress_bar: bool | None,
) -> tuple[np.ndarray, np.ndarray, dict]:
    """Log density and mean of the test rows, and the groups of a tridiagonal guide."""
    torch.set_num_threads(1)
    pyro.settings.set(module_local_params=True)  # two trainings share nothing
    pyro.enable_validation(False)
    pyro.set_rng_seed(schedule.seed)
    model = HeteroscedasticNetwork(split.x_train.shape[1], hidden)
    guide = make_guide(model, family)
    train(METHODS[method](), model, guide, split, schedule, progress_bar)
    log_prob = sampled_log_prob if method == "mcvi" else analytic_log_prob
    x_test, y_test = torch.as_tensor(split.x_test), torch.as_tensor(split.y_test)
    found, mean = log_prob(model, guide, x_test, y_test)
    groups = groups_of(guide.summary()) if isinstance(guide, TridiagonalGuide) else {}
    return found.numpy(), mean.numpy(), groups


def train(
    elbo: ELBO,
    model: PyroModule,
    guide: DVIGuide,
    split: Split,
    schedule: Schedule,
    progress_bar: bool | None = None,
) -> Fit:
    """Train on mini-batches; the learning rate rises over the first 30 % of the steps, then falls
    to zero."""
    rate = schedule.learning_rate
    cycle = partial(OneCycleLR, max_lr=rate, total_steps=schedule.steps, cycle_momentum=False)
    return fit(
        model,
        guide,
        torch.as_tensor(split.x_train),
        torch.as_tensor(split.y_train),
        objective=elbo,
        steps=schedule.steps,
        batch_size=schedule.batch_size,
        optimiser=partial(torch.optim.Adam, lr=rate),
        scheduler=cycle,
        kl_warm_up=schedule.kl_warm_up,
        seed=schedule.seed,
        progress_bar=progress_bar,
    )


@torch.no_grad()
def sampled_log_prob(
    model: PyroModule, guide: DVIGuide, x: Tensor, y: Tensor, samples: int = 1000
) -> tuple[Tensor, Tensor]:
    """Log predictive density and predictive mean by averaging over posterior samples."""
    draws = guide.sample_posterior(samples)
    noise = [_noise_at(model, {k: v[i] for k, v in draws.items()}, x) for i in range(samples)]
    log_prob = torch.stack([fn.log_prob(y) for fn in noise]).logsumexp(0) - np.log(samples)
    return log_prob, torch.stack([fn.mean for fn in noise]).mean(0)


def _noise_at(model: PyroModule, weights: dict[str, Tensor], x: Tensor) -> dist.Normal:
    trace = poutine.trace(poutine.condition(model, data=weights)).get_trace(x)
    return trace.nodes["obs"]["fn"]


def analytic_log_prob(
    model: PyroModule, guide: DVIGuide, x: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """Log predictive density and predictive mean in closed form."""
    prediction = predict(model, guide, x)["obs"]
    return prediction.log_prob(y), prediction.mean
