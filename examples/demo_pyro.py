"""The demo in Pyro: the model, and its training in closed form and by sampling."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceMeanField_ELBO
from pyro.nn import PyroModule, PyroSample
from regression import Run, Split
from torch import Tensor, nn

from pyro_moments import SVI, DeterministicELBO, DVIGuide, EmpiricalBayesNormal, predict


class Network(PyroModule):
    """An ordinary Pyro model: 50 ReLUs, two outputs, the log variance of the noise being one."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.hidden, self.output = layer(inputs, 50), layer(50, 2)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        out = self.output(torch.relu(self.hidden(x)))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(out[..., 0], torch.exp(0.5 * out[..., 1])), obs=y)


def layer(inputs: int, outputs: int) -> PyroModule:
    linear = PyroModule[nn.Linear](inputs, outputs)
    linear.weight = PyroSample(EmpiricalBayesNormal([outputs, inputs]))
    linear.bias = PyroSample(EmpiricalBayesNormal([outputs]))
    return linear


def runs(split: Split, options) -> Iterator[Run]:
    """The same model and guide, trained for the same time by either ELBO."""
    torch.set_num_threads(1)
    for label, elbo in (("DVI", DeterministicELBO()), ("MCVI", TraceMeanField_ELBO())):
        pyro.clear_param_store()
        model = Network(split.x_train.shape[1])
        yield train(label, SVI(model, DVIGuide(), elbo), split, options.seconds)


def train(label: str, svi: SVI, split: Split, seconds: float) -> Run:
    pyro.set_rng_seed(0)
    x_train, y_train, x_test, y_test = map(
        torch.as_tensor, (split.x_train, split.y_train, split.x_test, split.y_test)
    )
    svi.step(x_train, y_train)  # outside the clock: torch loads its optimisers here
    times, elbos, start = [], [], time.perf_counter()
    while not times or times[-1] < seconds:
        elbos.append(-svi.step(x_train, y_train))
        times.append(time.perf_counter() - start)
    prediction = predict(svi.model, svi.guide, x_test)["obs"]
    parts = prediction.mean, prediction.variance, prediction.epistemic_variance
    return Run(label, *map(np.asarray, (*parts, prediction.log_prob(y_test))), times, elbos)
