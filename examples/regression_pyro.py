"""The network of the regression examples in Pyro: model, guide, training and predictions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from regression import Schedule, Split
from torch import Tensor, nn

from pyro_moments import DeterministicELBO, DVIGuide, EmpiricalBayesNormal, predict


class HeteroscedasticNetwork(PyroModule):
    """One hidden ReLU layer and two outputs: the location and the log variance of the noise.

    Every weight matrix and bias vector has an empirical-Bayes prior of its own. `rows` is the size
    of the whole data set: the likelihood of a mini-batch is scaled up to it.
    """

    def __init__(self, inputs: int, hidden: int, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.hidden = bayesian_linear(inputs, hidden)
        self.output = bayesian_linear(hidden, 2)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        out = self.output(torch.relu(self.hidden(x)))
        loc, scale = out[..., 0], torch.exp(0.5 * out[..., 1])
        with poutine.scale(scale=self.rows / len(x)), pyro.plate("data", len(x)):
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


def make_guide(model: PyroModule) -> DVIGuide:
    """A posterior that starts almost certain: noise in the weights hides the data at first."""
    return DVIGuide(model, init_loc_fn=init_with_spread_kinks, init_scale=0.01)


METHODS = {
    "dvi": lambda: DeterministicELBO(covariance="full"),
    "ddvi": lambda: DeterministicELBO(covariance="diagonal"),
    "mcvi": lambda: TraceMeanField_ELBO(num_particles=10),
}


def fit(
    split: Split, method: str, hidden: int, schedule: Schedule
) -> Iterator[tuple[np.ndarray, np.ndarray] | float]:
    """Train on a split and predict: losses, last (log density, mean) of the test rows."""
    torch.set_num_threads(1)
    pyro.settings.set(module_local_params=True)  # the optimiser takes them from the guide
    pyro.enable_validation(False)
    pyro.set_rng_seed(schedule.seed)
    x_train, y_train, x_test, y_test = map(
        torch.as_tensor, (split.x_train, split.y_train, split.x_test, split.y_test)
    )
    model = HeteroscedasticNetwork(x_train.shape[1], hidden, len(x_train))
    guide = make_guide(model)
    yield from train(METHODS[method](), model, guide, x_train, y_train, schedule)
    log_prob = sampled_log_prob if method == "mcvi" else analytic_log_prob
    yield tuple(part.numpy() for part in log_prob(model, guide, x_test, y_test))


def train(
    elbo: ELBO,
    model: PyroModule,
    guide: DVIGuide,
    x: Tensor,
    y: Tensor,
    schedule: Schedule,
) -> Iterator[float]:
    """Take Adam steps on mini-batches, yielding each loss.

    The learning rate rises over the first 30 % of the steps, then falls to zero. One optimiser of
    all parameters takes half the time of `SVI.step`, which has one for every parameter.
    """
    loss_of = elbo(model, guide)
    loss_of(x[:1], y[:1])  # makes the parameters
    optimiser = torch.optim.Adam(guide.parameters(), lr=schedule.learning_rate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schedule.learning_rate, total_steps=schedule.steps, cycle_momentum=False
    )
    batches = mini_batches(len(x), schedule.batch_size)
    for _, rows in zip(range(schedule.steps), batches, strict=False):
        loss = loss_of(x[rows], y[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        cycle.step()
        yield loss.item()


def mini_batches(rows: int, batch_size: int) -> Iterator[Tensor]:
    """Row indices of mini-batches, shuffled anew in every epoch; a small remainder is skipped."""
    size = min(batch_size, rows)
    while True:
        yield from torch.randperm(rows)[: rows - rows % size].split(size)


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
