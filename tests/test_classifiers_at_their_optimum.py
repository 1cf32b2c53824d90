"""Losses of classifiers where training leads, beside those of draws of the weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from sklearn.datasets import load_wine
from torch import nn

import pyro_moments

HIDDEN, DRAWS = 8, 2000


def wine():
    inputs, labels = load_wine(return_X_y=True)
    return ((inputs - inputs.mean(0)) / inputs.std(0)).astype("float32"), labels


class Network(PyroModule):
    def __init__(self):
        super().__init__()
        self.first, self.last = PyroModule[nn.Linear](13, HIDDEN), PyroModule[nn.Linear](HIDDEN, 3)
        for layer in (self.first, self.last):
            for name, value in list(layer.named_parameters()):
                prior = dist.Normal(0.0, 1.0).expand(value.shape).to_event(value.dim())
                setattr(layer, name, PyroSample(prior))

    def forward(self, x, y=None):
        logits = self.last(torch.relu(self.first(x)))
        with pyro.plate("rows", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def in_pyro(objective, truth, **options):
    """The loss as stated and by draws; probabilities in closed form and by draws."""
    x, y = map(torch.tensor, wine())
    torch.manual_seed(0)
    model, guide = Network(), pyro_moments.DVIGuide()
    loss = getattr(pyro_moments, objective)(**options)
    result = pyro_moments.fit(
        model, guide, x, y, objective=loss, method="lbfgs", steps=100, progress_bar=False
    )
    drawn = getattr(pyro_moments, objective)(
        propagation="sampled", num_particles=DRAWS, **truth
    ).loss(model, result.guide, x, y)
    shares = pyro_moments.predict(model, result.guide, x)["obs"].probs
    by_draws = pyro_moments.predict(
        model, result.guide, x, propagation="sampled", num_particles=DRAWS
    )["obs"].probs
    return result.loss, float(drawn), shares.numpy(), by_draws.numpy()


@pytest.mark.parametrize(
    ("objective", "truth", "options"),
    [
        ("DeterministicELBO", {}, {"covariance": "diagonal"}),
        ("BBAlphaELBO", {"alpha": 0.5}, {"alpha": 0.5}),
        ("DeterministicELBO", {}, {"categorical": "pairs"}),
        ("BBAlphaELBO", {"alpha": 1.0}, {"alpha": 1.0}),
    ],
)
def test_the_loss_of_a_classifier_is_that_of_draws(objective, truth, options):
    """Within 5 % at the optimum; the second-order expansion stated 31 where 531 was true."""
    stated, drawn, shares, by_draws = in_pyro(objective, truth, **options)
    assert stated > 0
    assert abs(stated - drawn) < max(0.05 * drawn, 3.0)
    assert np.sqrt(np.mean((shares - by_draws) ** 2)) < 0.005 + 0.5 / DRAWS**0.5


NAMES = [
    "regression",
    "heteroscedastic",
    "robust",
    "logistic",
    "ordinal",
    "softmax",
    "Poisson",
    "hierarchical",
    "residual",
    "layer norm",
    "two heads",
    "local latents",
]
STEPS = {"pyro": 60, "numpyro": 100}


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1] / "benchmarks")
    import model_accuracy

    return model_accuracy


# Losses of the other models are compared between the frameworks, and likelihoods with draws in
# fitting/test_losses_at_the_optimum.py.
COMPARED = [
    *(("pyro", name) for name in ("hierarchical", "local latents", "residual")),
    *(("pyro", name) for name in ("layer norm", "two heads")),
    *(("numpyro", name) for name in ("layer norm", "local latents")),
]


@pytest.mark.parametrize(("host", "name"), COMPARED)
def test_elbo_agrees_with_samples(benchmark, host, name):
    model, data = benchmark.models(host)[name]
    module = benchmark.hosts.load(host)
    row = benchmark.compare(module, name, model, data, samples=300, steps=STEPS[host])
    assert row.agrees, row
    assert row.standard_error < 0.02 * abs(row.sampled), "too few samples to tell"


@pytest.mark.parametrize("host", STEPS)
def test_names_are_complete(benchmark, host):
    assert sorted(benchmark.models(host)) == sorted(NAMES)
