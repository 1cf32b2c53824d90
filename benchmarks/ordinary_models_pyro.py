"""Steps of ordinary regressions in Pyro: the closed-form ELBO against Pyro's sampled ELBO."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from step_time_pyro import elbo_step
from timing import Table, measure
from torch import Tensor

from pyro_moments import DeterministicELBO, DVIGuide

COVARIATES, LARGE, SMALL = 20, 100_000, (60, 3)
CUTPOINTS = torch.tensor([-1.0, 0.0, 1.0])
SAMPLED, CLOSED = "TraceMeanField_ELBO + AutoNormal", "DeterministicELBO + DVIGuide"

# outcome of a linear predictor f, with its largest ratio
OUTCOMES: dict[str, tuple[Callable[[Tensor], dist.Distribution], float]] = {
    "Bernoulli": (lambda f: dist.Bernoulli(logits=f), 2.0),
    "Poisson": (lambda f: dist.Poisson(f.exp()), 1.5),
    "NegativeBinomial": (lambda f: dist.NegativeBinomial(5.0, logits=f), 3.0),
    "StudentT": (lambda f: dist.StudentT(4.0, f, 0.5), 3.0),
    "Gamma": (lambda f: dist.Gamma(2.0, 2.0 * (-f).exp()), 4.0),
    "OrderedLogistic": (lambda f: dist.OrderedLogistic(f, CUTPOINTS), 4.0),
    "GammaPoisson": (lambda f: dist.GammaPoisson(3.0, 3.0 * (-f).exp()), 4.0),
}


def tables(options: argparse.Namespace) -> Iterator[Table]:
    torch.set_num_threads(1)
    sizes = [(options.rows, COVARIATES, options.repeats)]
    plan = [(name, *size) for name, size in itertools.product(OUTCOMES, sizes)]
    plan.append(("Bernoulli", LARGE, COVARIATES, max(3, options.repeats // 10)))
    plan.append(("GammaPoisson", *SMALL, 5 * options.repeats))
    for name, rows, covariates, repeats in plan:
        title = f"{name}, {rows} x {covariates}"
        if options.only in title:
            outcome, limit = OUTCOMES[name]
            with pyro.settings.context(module_local_params=True):  # of each guide
                steps = regression_steps(outcome, rows, covariates)
                yield Table(title, measure(steps, repeats), {CLOSED: limit})


def regression_steps(
    outcome: Callable[[Tensor], dist.Distribution], rows: int, covariates: int
) -> dict[str, Callable]:
    torch.manual_seed(0)

    def model(x: Tensor, y: Tensor | None = None) -> Tensor:
        intercept = pyro.sample("intercept", dist.Normal(0.0, 2.0))
        slopes = pyro.sample("slopes", dist.Normal(0.0, 1.0).expand([covariates]).to_event(1))
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", outcome(intercept + x @ slopes), obs=y)

    x = torch.randn(rows, covariates)
    data = x, model(x)
    return {
        SAMPLED: elbo_step(TraceMeanField_ELBO(), model, AutoNormal(model), data),
        CLOSED: elbo_step(DeterministicELBO(), model, DVIGuide(model), data),
    }
