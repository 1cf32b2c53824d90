"""Time of one ELBO with its gradient: closed form against Pyro's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py

A 13-50-1 network on mini-batches of 64 with Pyro's TraceMeanField_ELBO and AutoNormal (one sample)
as the reference, and a 784-400-400-10 classifier on batches of 128 with a plain network's
forward and backward pass as the reference. All contenders of a table run in turn in one process;
the minimum over the repeats is reported, since whatever disturbs a run makes it slower.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro.infer import TraceMeanField_ELBO
from pyro.infer.autoguide import AutoNormal
from pyro.infer.elbo import ELBO
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn

from pyro_moments import DeterministicELBO, DVIGuide

Step = Callable[[], object]


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(1)
    own_parameters = pyro.settings.context(module_local_params=True)  # of each guide
    with own_parameters, pyro.validation_enabled(not options.no_validation):
        tables = measure_all(options)
    for title, seconds in tables.items():
        show(title, seconds)
    if options.out:
        options.out.write_text(json.dumps(tables, indent=2) + "\n")


def measure_all(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    tables = {"13-50-1, batch 64": measure(regression_steps(), options.repeats)}
    if not options.small_only:
        steps = classification_steps()
        tables["784-400-400-10, batch 128"] = measure(steps, max(3, options.repeats // 40))
    return tables


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=400, help="of the small network (400)")
    parser.add_argument("--small-only", action="store_true", help="leave the classifier out")
    parser.add_argument("--no-validation", action="store_true", help="Pyro's validation off")
    parser.add_argument("--backend", choices=["pyro", "numpyro"], default="pyro")
    parser.add_argument("--out", type=Path, help="write seconds by contender to this JSON file")
    options = parser.parse_args(arguments)
    if options.backend != "pyro":
        parser.error("--backend numpyro is not available yet; use --backend pyro")
    return options


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


def regression_steps() -> dict[str, Step]:
    torch.manual_seed(0)
    data, model = (torch.randn(64, 13), torch.randn(64)), Regression(13, 50, 1)
    small = {"init_scale": 0.05}
    return {
        "TraceMeanField_ELBO + AutoNormal": elbo_step(
            TraceMeanField_ELBO(), model, AutoNormal(model, **small), data
        ),
        "TraceMeanField_ELBO + DVIGuide": elbo_step(
            TraceMeanField_ELBO(), model, DVIGuide(model, **small), data
        ),
        "DeterministicELBO full + DVIGuide": elbo_step(
            DeterministicELBO(covariance="full"), model, DVIGuide(model, **small), data
        ),
        "DeterministicELBO diagonal + DVIGuide": elbo_step(
            DeterministicELBO(covariance="diagonal"), model, DVIGuide(model, **small), data
        ),
    }


def classification_steps() -> dict[str, Step]:
    torch.manual_seed(0)
    data = torch.rand(128, 784), torch.randint(10, (128,))
    model = Classification(784, 400, 400, 10)
    guide = DVIGuide(model, init_scale=0.05)
    return {
        "plain network": plain_step(data),
        "TraceMeanField_ELBO + DVIGuide": elbo_step(TraceMeanField_ELBO(), model, guide, data),
        "DeterministicELBO diagonal + DVIGuide": elbo_step(
            DeterministicELBO(covariance="diagonal"), model, guide, data
        ),
    }


def elbo_step(elbo: ELBO, model: PyroModule, guide: Callable, data: tuple) -> Step:
    """One loss with its gradients, as an SVI step computes them, without the optimiser."""
    elbo.loss(model, guide, *data)  # the guide makes its parameters
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


def measure(steps: dict[str, Step], repeats: int) -> dict[str, float]:
    """Seconds of the fastest of the interleaved repeats, by contender."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(repeats + 3):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def show(title: str, seconds: dict[str, float]) -> None:
    reference = next(iter(seconds.values()))
    print(f"\n{title:38s} {'ms':>8s} {'ratio':>7s}")
    for name, value in seconds.items():
        print(f"{name:38s} {1e3 * value:8.3f} {value / reference:7.2f}")


if __name__ == "__main__":
    main()
