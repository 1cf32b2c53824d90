"""Steps in Pyro: losses with their gradients, and trainings. `steps_numpyro` has the same names."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import host_pyro as host
import numpy as np
import pyro
import torch
import torch.nn.functional as F
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from time_to_accuracy_data import BATCH, Split
from timing import Step
from torch import Tensor, nn
from torch.autograd.profiler import profile


class Network(PyroModule):
    """Fully connected network with standard normal priors on all weights."""

    def __init__(self, sizes: tuple[int, ...], activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation
        self.layers = PyroModule[nn.ModuleList](itertools.starmap(layer, itertools.pairwise(sizes)))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for module in hidden:
            x = self.activation(module(x))
        return last(x)


def layer(inputs: int, outputs: int) -> PyroModule:
    linear, normal = PyroModule[nn.Linear](inputs, outputs), host.dist.Normal(0.0, 1.0)
    linear.weight = PyroSample(normal.expand([outputs, inputs]).to_event(2))
    linear.bias = PyroSample(normal.expand([outputs]).to_event(1))
    return linear


def activation(name: str) -> Callable[[Tensor], Tensor]:
    return getattr(F, name)


def network(sizes: tuple[int, ...], activation: Callable[[Tensor], Tensor] = torch.relu) -> Network:
    return Network(sizes, activation)


def by_fan_in(site: dict) -> Tensor:
    """Weights N(0, 1/fan-in), biases 0."""
    shape = site["fn"].event_shape
    return torch.randn(shape) * shape[-1] ** -0.5 if len(shape) > 1 else torch.zeros(shape)


def elbo_step(
    elbo: ELBO, guide: Callable, model: Callable, data: tuple, **options: Any
) -> tuple[Step, float]:
    """One loss with its gradients, as an SVI step computes them, and the seconds of the first.

    Args:
        elbo: the loss.
        guide: the class of the guide.
        model: of the data.
        data: arguments of the model.
        options: of the guide.
    """
    torch.manual_seed(0)
    made = guide(model, **{"init_scale": 0.05} | options)
    start = time.perf_counter()
    elbo.loss_and_grads(model, made, *data)  # the guide makes its parameters
    first = time.perf_counter() - start
    if getattr(elbo, "compiled", None):
        print(f"compiling took {first:.0f} s")
    parameters = list(made.parameters())

    def step() -> None:
        for parameter in parameters:
            parameter.grad = None
        with pyro.poutine.trace(param_only=True):
            elbo.loss_and_grads(model, made, *data)

    return step, first


def update(elbo: ELBO, guide: Callable, model: Callable, data: tuple) -> tuple[Step, float]:
    """A step of Pyro's SVI by its Adam."""
    made, adam = guide(model, init_scale=0.05), pyro.optim.Adam({"lr": 1e-3})
    return timed(pyro.infer.SVI(model, made, adam, elbo).step, *data)


def plain_step(sizes: tuple[int, ...], activation: Callable, data: tuple) -> tuple[Step, float]:
    """Cross entropy of a network without distributions, with its gradients."""
    (x, y), layers = data, list(itertools.starmap(nn.Linear, itertools.pairwise(sizes)))
    parts = [part for linear in layers for part in (linear, nn.ReLU())]
    plain = nn.Sequential(*parts[:-1])

    def step() -> None:
        plain.zero_grad()
        F.cross_entropy(plain(x), y).backward()

    return step, 0.0


def timed(function: Callable, *arguments: Any) -> tuple[Step, float]:
    """Nothing is compiled."""
    return partial(function, *arguments), 0.0


def peak(step: Step) -> int:
    """Bytes that one loss with its gradients needs at most, above what is there before."""
    step()  # the guide makes its parameters, and their gradients
    with profile(profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.kineto_results.events() if event.name() == "[memory]"]
    live = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        highest = max(highest, live)
    return highest


class Training:
    """A network that is being trained, from the start of its split."""

    def __init__(
        self, elbo: ELBO, guide: Callable, model: Callable, split: Split, rate: float, scale: float
    ) -> None:
        pyro.set_rng_seed(split.number)
        self.x, self.y = torch.as_tensor(split.x), torch.as_tensor(split.y)
        values = {name: torch.as_tensor(value) for name, value in split.start().items()}
        self.guide = guide(model, init_loc_fn=host.init_to_value(values=values), init_scale=scale)
        self.names = list(values)
        elbo.loss_and_grads(model, self.guide, self.x[:BATCH], self.y[:BATCH])  # compiles
        self.guide.zero_grad()
        self.svi = pyro.infer.SVI(model, self.guide, pyro.optim.Adam({"lr": rate}), elbo)

    def advance(self, batches: np.ndarray) -> None:
        for rows in torch.as_tensor(batches):
            self.svi.step(self.x[rows], self.y[rows])

    @torch.no_grad()
    def posterior(self) -> dict[str, tuple]:
        """Locations and scales by site."""
        parts = self.guide.locs, self.guide.scales
        return {name: tuple(getattr(part, name).numpy() for part in parts) for name in self.names}
