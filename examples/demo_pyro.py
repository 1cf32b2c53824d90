"""The demo in Pyro: the model, and its training in closed form and by sampling."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from regression import Clock, Run, Split
from torch import Tensor, nn

from pyro_moments import (
    Comparison,
    DeterministicELBO,
    DVIGuide,
    EmpiricalBayesNormal,
    compare_with_nuts,
    fit,
    predict,
)


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


def runs(split: Split, options: Namespace) -> Iterator[Run]:
    """The same model and guide, trained for the same time by either ELBO."""
    torch.set_num_threads(1)
    for label, elbo in (("DVI", DeterministicELBO()), ("MCVI", TraceMeanField_ELBO())):
        pyro.clear_param_store()
        pyro.set_rng_seed(0)
        yield train(label, elbo, split, Clock(options.seconds))


def train(label: str, elbo: ELBO, split: Split, clock: Clock) -> Run:
    x_train, y_train, x_test, y_test = map(
        torch.as_tensor, (split.x_train, split.y_train, split.x_test, split.y_test)
    )
    model, guide = Network(x_train.shape[1]), DVIGuide()
    fit(model, guide, x_train, y_train, objective=elbo, callback=clock, **Clock.UNTIL)
    prediction = predict(model, guide, x_test)["obs"]
    return clock.run(label, prediction, prediction.log_prob(y_test))


def regression(x: Tensor, y: Tensor | None = None) -> None:
    """All covariates, whose coefficients depend on each other in the posterior."""
    weights = pyro.sample("weights", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    bias = pyro.sample("bias", dist.Normal(0.0, 1.0))
    scale = pyro.sample("scale", dist.HalfNormal(1.0))
    with pyro.plate("data", len(x)):
        pyro.sample("obs", dist.Normal(x @ weights + bias, scale), obs=y)


def comparisons(split: Split, options: Namespace) -> Iterator[tuple[str, Comparison]]:
    """A regression by moments, and corrected by linear response, beside NUTS."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    x, y, new = (
        torch.as_tensor(part).double() for part in (split.x_train, split.y_train, split.x_test)
    )
    found = fit(regression, DVIGuide(), x, y, method="newton", float64=True)
    chains = {"num_warmup": options.nuts, "num_samples": options.nuts, "num_chains": 1}
    yield (
        "regression in Pyro: DVI",
        compare_with_nuts(regression, found, x, y, test=(new,), **chains),
    )
