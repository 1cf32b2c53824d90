"""Steps in Pyro: the closed-form ELBO against Pyro's sampled ELBO, and against a plain network."""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro.infer import Trace_ELBO, TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from step_limits import PASS, PRODUCTS, operands, passed, products, to_limit
from timing import (
    BY_DRAWS,
    COMPILED,
    DROPOUT,
    ENERGY,
    LARGE,
    PARTICLES,
    SAMPLED,
    SMALL,
    Step,
    Table,
    dropout_limits,
    measure,
)
from torch import Tensor, nn

from pyro_moments import BBAlphaELBO, DeterministicELBO, DVIGuide, MCDropoutGuide

FULL, DIAGONAL = "DeterministicELBO full", "DeterministicELBO diagonal"


def tables(options: argparse.Namespace) -> Iterator[Table]:
    torch.set_num_threads(options.threads or 1)
    own_parameters = pyro.settings.context(module_local_params=True)  # of each guide
    compiled = not options.no_compiled
    with own_parameters, pyro.validation_enabled(not options.no_validation):
        limits = {FULL: 0.9, DIAGONAL: 0.9, FULL + COMPILED: 0.2, DIAGONAL + COMPILED: 0.2}
        yield Table(SMALL, measure(regression_steps(compiled), options.repeats), limits)
        yield Table(SAMPLED, measure(sampled_steps(), options.repeats), {BY_DRAWS: 1.0})
        found = measure(dropout_steps(compiled), options.repeats)
        yield Table(DROPOUT, found, dropout_limits(found))
        if not options.small_only:
            repeats = max(3, options.repeats // 40)
            large = measure(classification_steps(compiled), repeats)
            yield Table(LARGE, large, {})
            yield to_limit(LARGE, large, DIAGONAL + COMPILED if compiled else DIAGONAL)


class Network(PyroModule):
    """Fully connected ReLU network with standard normal priors on all weights."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = PyroModule[nn.ModuleList](itertools.starmap(layer, itertools.pairwise(sizes)))

    def outputs(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for module in hidden:
            x = torch.relu(module(x))
        return last(x)


def layer(inputs: int, outputs: int) -> PyroModule:
    linear = PyroModule[nn.Linear](inputs, outputs)
    linear.weight = PyroSample(dist.Normal(0.0, 1.0).expand([outputs, inputs]).to_event(2))
    linear.bias = PyroSample(dist.Normal(0.0, 1.0).expand([outputs]).to_event(1))
    return linear


class Regression(Network):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        loc = self.outputs(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Normal(loc, 0.5), obs=y)


class Classification(Network):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        logits = self.outputs(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("obs", dist.Categorical(logits=logits), obs=y)


def regression_steps(compiled: bool) -> dict[str, Step]:
    torch.manual_seed(0)
    data, model = (torch.randn(64, 13), torch.randn(64)), Regression(13, 50, 1)
    small = {"init_scale": 0.05}
    steps = {
        "TraceMeanField_ELBO + AutoNormal": elbo_step(
            TraceMeanField_ELBO(), model, AutoNormal(model, **small), data
        ),
        "TraceMeanField_ELBO + DVIGuide": elbo_step(
            TraceMeanField_ELBO(), model, DVIGuide(model, **small), data
        ),
    }
    for covariance in ("full", "diagonal"):
        for name, options in contenders(covariance, compiled).items():
            elbo = DeterministicELBO(covariance=covariance, **options)
            steps[name] = elbo_step(elbo, model, DVIGuide(model, **small), data)
    return steps


def sampled_steps() -> dict[str, Step]:
    """Pyro's own draws, and those by rows."""
    torch.manual_seed(0)
    data, model = (torch.randn(64, 13), torch.randn(64)), Regression(13, 50, 1)
    small = {"init_scale": 0.05}
    contenders = {
        "Trace_ELBO + AutoNormal": (Trace_ELBO(), AutoNormal),
        BY_DRAWS: (DeterministicELBO(propagation="sampled"), DVIGuide),
    }
    return {
        name: elbo_step(elbo, model, guide(model, **small), data)
        for name, (elbo, guide) in contenders.items()
    }


def dropout_steps(compiled: bool) -> dict[str, Step]:
    """MC dropout by draws of its masks, and without."""
    torch.manual_seed(0)
    data, model = (torch.randn(64, 13), torch.randn(64)), Regression(13, 50, 1)
    energies = {
        PARTICLES[1]: DeterministicELBO(propagation="sampled"),  # what one particle amounts to
        PARTICLES[10]: BBAlphaELBO(0.5, num_particles=10, propagation="sampled"),
        ENERGY: BBAlphaELBO(0.5, covariance="diagonal"),
    }
    if compiled:
        energies[ENERGY + COMPILED] = BBAlphaELBO(0.5, covariance="diagonal", compiled=True)
    return {
        name: elbo_step(energy, model, MCDropoutGuide(model), data)
        for name, energy in energies.items()
    }


def classification_steps(compiled: bool) -> dict[str, Step]:
    torch.manual_seed(0)
    data = torch.rand(128, 784), torch.randint(10, (128,))
    model = Classification(784, 400, 400, 10)
    guide = DVIGuide(model, init_scale=0.05)
    steps = {
        "plain network": plain_step(data),
        "TraceMeanField_ELBO + DVIGuide": elbo_step(TraceMeanField_ELBO(), model, guide, data),
    }
    for name, options in contenders("diagonal", compiled).items():
        elbo = DeterministicELBO(covariance="diagonal", **options)
        steps[name] = elbo_step(elbo, model, guide, data)
    layers = operands((784, 400, 400, 10), len(data[0]), torch.randn)
    return {**steps, PRODUCTS: partial(products, layers), PASS: partial(passed, layers)}


def contenders(covariance: str, compiled: bool) -> dict[str, dict]:
    name = f"DeterministicELBO {covariance}"
    return {name: {}, **({name + COMPILED: {"compiled": True}} if compiled else {})}


def elbo_step(elbo: ELBO, model: PyroModule, guide: Callable, data: tuple) -> Step:
    """One loss with its gradients, as an SVI step computes them, without the optimiser."""
    start = time.perf_counter()
    elbo.loss_and_grads(model, guide, *data)  # the guide makes its parameters
    if getattr(elbo, "compiled", None):
        print(f"compiling took {time.perf_counter() - start:.0f} s")
    parameters = list(guide.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        with pyro.poutine.trace(param_only=True):
            elbo.loss_and_grads(model, guide, *data)

    return step


def plain_step(data: tuple) -> Step:
    x, y = data
    sizes = itertools.pairwise((784, 400, 400, 10))
    first, second, third = (nn.Linear(*size) for size in sizes)
    network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)

    def step() -> None:
        network.zero_grad()
        F.cross_entropy(network(x), y).backward()

    return step
