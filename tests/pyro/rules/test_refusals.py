"""Every refusal says what is wrong, which sites are concerned and what to do about it."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule
from torch import nn

from pyro_moments import DeterministicELBO, DVIGuide
from tests.checks.predictions import Refusal
from tests.pyro import models

X, Y = models.data()


def with_nan(data: torch.Tensor, *index: int) -> torch.Tensor:
    data = data.clone()
    data[index] = torch.nan
    return data


class Inside(PyroModule):
    """Reads its weights inside the data plate."""

    def __init__(self, subsample_size: int | None = None) -> None:
        super().__init__()
        self.network = models.make_bayesian(nn.Sequential(nn.Linear(3, 1)))
        self.subsample_size = subsample_size

    def forward(self, x, y):
        with pyro.plate("data", len(x), subsample_size=self.subsample_size) as index:
            mean = self.network(x[index]).squeeze(-1)
            pyro.sample("obs", dist.Normal(mean, 0.3), obs=y[index])


def scalar(step: Callable[[Any], Any]) -> Callable:
    """A model that passes one Gaussian site through a step and observes the result."""

    def model(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        pyro.sample("obs", dist.Normal(step(w), 1.0), obs=y[0])

    return model


def branching(w):
    return w + 1 if w > 0 else w


def gaussian_scale(x, y):
    w = pyro.sample("w", dist.Normal(1.0, 1.0))
    pyro.sample("obs", dist.Normal(0.0, 2 * w), obs=y[0])


def discrete(x, y):
    z = pyro.sample("z", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
    w = pyro.sample("w", dist.Normal(0.0, 1.0))
    pyro.sample("obs", dist.Normal(w + z, 1.0), obs=y[0])


def discrete_guide(x, y):
    pyro.sample("z", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
    pyro.sample("w", dist.Normal(0.0, 1.0))


def two_levels(x, y):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    b = pyro.sample("b", dist.Normal(a, 1.0))
    pyro.sample("obs", dist.Normal(b, 1.0), obs=y[0])


def chained_guide(x, y):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    pyro.sample("b", dist.Normal(0.0, torch.exp(a)))


def curved_guide(x, y):
    a = pyro.sample("a", dist.Normal(0.0, 1.0))
    pyro.sample("b", dist.Normal(torch.relu(a), 1.0))


def other_guide(x, y):
    pyro.sample("w", dist.Normal(0.0, 1.0))


def gamma_guide(x, y):
    pyro.sample("w", dist.Gamma(2.0, 1.0))


def sums(x, y):
    w = pyro.sample("w", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    models.observe(x, dist.Normal((w + x)[:, 0], 1.0), y)


def loss(model: Any, guide: Any = None, x: Any = X, y: Any = Y, **options: Any) -> Callable:
    return lambda: DeterministicELBO(**options).loss(model, guide or DVIGuide(), x, y)


def after_training(model: Any, x: Any, y: Any = Y) -> Callable:
    """The guide has met good data before."""

    def run():
        guide = DVIGuide()
        guide.bind(model)
        width = 4 if model is sums else 3
        guide(torch.ones(20, width), Y)
        return loss(model, guide, x, y)()

    return run


WEIGHTS = ("network.0.bias", "network.0.weight")
REFUSALS = {
    "operation without a rule": Refusal(
        loss(scalar(lambda w: torch.special.i0(w))),
        r"i0: this operation has no moment rule\n  where: .*test_refusals\.py:\d+",
        "supported table, register one with @pyro_moments.moment_rule",
        ("w",),
    ),
    "branching": Refusal(
        loss(scalar(branching)), "__bool__: the program branches on a random", "torch.relu", ("w",)
    ),
    "discrete guide site": Refusal(
        loss(discrete, discrete_guide), r"'z' is discrete \(Bernoulli\)", "TraceEnum_ELBO", ("z",)
    ),
    "discrete site hidden from the guide": Refusal(
        loss(discrete, other_guide),
        "'z' is discrete",
        r"marginalise it in the model.*pyro_moments\.units\.bernoulli_logistic",
        ("z",),
    ),
    "discrete site to be drawn": Refusal(
        loss(discrete, discrete_guide, sample_sites=["z"]),
        "'z' of sample_sites cannot be drawn by reparameterisation",
        "TraceEnum_ELBO",
        ("z",),
    ),
    "guide that is not mean-field": Refusal(
        loss(two_levels, chained_guide),
        r"'b' has a scale that depends on other latent sites \(a\): the guide is neither",
        "scales of guide sites certain",
        ("a", "b"),
    ),
    "guide with a non-linear location": Refusal(
        loss(two_levels, curved_guide),
        r"'b' has a non-linear location that depends on other latent sites \(a\)",
        "linear in other sites",
        ("a", "b"),
    ),
    "latent site missing in the guide": Refusal(
        loss(two_levels, other_guide), "'a' of the model is not in the guide", "add it", ("a",)
    ),
    "posterior without moments": Refusal(
        loss(scalar(lambda w: w), gamma_guide), "'w' has a Gamma posterior", "sample_sites", ("w",)
    ),
    "weights read inside the data plate": Refusal(
        loss(Inside()), "sampled inside plate 'data'.*of its own", "outside of 'data'", WEIGHTS
    ),
    "weights read inside a subsampled plate": Refusal(
        loss(Inside(5)), "sampled inside plate 'data'.*of its own", "outside of 'data'", WEIGHTS
    ),
    "NaN observations": Refusal(
        loss(models.linear_regression, y=with_nan(Y, 3)),
        r"site 'obs' \(argument 'y'\) has 1 NaN or infinite element\(s\) of 20, .* row 3",
        "impute",
    ),
    "NaN inputs": Refusal(
        loss(models.sequential(), x=with_nan(X, 2, 1)), r"input 'x'.*row 2, column 1", "impute"
    ),
    "NaN inputs of a trained guide": Refusal(
        after_training(models.linear_regression, with_nan(X, 2, 1)), "input 'x' of", "impute"
    ),
    "infinite inputs": Refusal(
        loss(models.linear_regression, x=X / 0.0), r"input 'x'.*of 60.*row 0, column 0", "impute"
    ),
    "shapes of a product": Refusal(
        after_training(models.sequential(), X[:, :2]),
        r"linear.*\(20, 2\).*\(8, 3\)",
        "trailing axis",
        WEIGHTS,
    ),
    "shapes of a sum": Refusal(
        after_training(sums, X), r"__r?add__.*\(4,\).*\(20, 3\) do not", "axes of size one", ("w",)
    ),
    "shape of the observations": Refusal(
        loss(models.linear_regression, y=Y[:7]),
        r"site 'obs' .*\[7\].*\[20\]",
        "as many observations as rows",
    ),
    "memory": Refusal(
        loss(models.sequential(2), memory_limit=5000),
        r"covariance of a value of shape \(20, 8\) takes 5120 bytes; the limit is 5000",
        r"covariance='diagonal'.*memory_limit",
        (*WEIGHTS, "network.2.bias", "network.2.weight"),
    ),
    "memory for the heads of one output": Refusal(
        loss(models.Heteroscedastic(), covariance="diagonal", memory_limit=60),
        r"covariance of a value of shape \(20, 2\) takes 80 bytes",
        "^use smaller batches",
        (*WEIGHTS, "network.2.bias", "network.2.weight"),
    ),
    "Gaussian scale": Refusal(
        loss(gaussian_scale), "site 'obs': the scale is a Gaussian", r"exp\(h\)", ("w",)
    ),
    "empty batch": Refusal(
        loss(models.sequential(), x=X[:0], y=Y[:0]), r"batch is empty.*'x'.*\(0, 3\)", "skip empty"
    ),
    "unknown site to be drawn": Refusal(
        loss(models.linear_regression, sample_sites=["v", "b"]),
        "sample_sites names 'v', not a latent site of the guide; its latent sites are 'w', 'b'",
        "name sites as the model does",
        ("b", "w"),
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.filterwarnings("ignore:Found .*vars in")
def test_refusal_names_cause_sites_and_remedy(refusal):
    refusal.check()
