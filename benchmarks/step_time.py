"""Time of one ELBO with its gradient: closed form against Pyro's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/step_time.py [--check] [--threads 2]

A 13-50-1 network on mini-batches of 64 with Pyro's TraceMeanField_ELBO and AutoNormal (one sample)
as the reference, and a 784-400-400-10 classifier on batches of 128 with a plain network's
forward and backward pass as the reference. All contenders of a table run in turn in one process;
the minimum over the repeats is reported, since whatever disturbs a run makes it slower. Compiling
takes place before and is reported apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
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

SMALL, LARGE = "13-50-1, batch 64", "784-400-400-10, batch 128"
FULL, DIAGONAL = "DeterministicELBO full", "DeterministicELBO diagonal"
COMPILED = ", compiled"
# Ratios to the first contender of each table that are allowed.
THRESHOLDS = {
    SMALL: {FULL: 0.9, DIAGONAL: 0.9, FULL + COMPILED: 0.2, DIAGONAL + COMPILED: 0.2},
    LARGE: {DIAGONAL + COMPILED: 3.3},
}


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    own_parameters = pyro.settings.context(module_local_params=True)  # of each guide
    with own_parameters, pyro.validation_enabled(not options.no_validation):
        tables = measure_all(options)
    slow = [name for title, seconds in tables.items() for name in show(title, seconds)]
    if options.out:
        options.out.write_text(json.dumps(tables, indent=2) + "\n")
    if options.check and slow:
        sys.exit(f"too slow: {'; '.join(slow)}")


def measure_all(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    compiled = not options.no_compiled
    tables = {SMALL: measure(regression_steps(compiled), options.repeats)}
    if not options.small_only:
        tables[LARGE] = measure(classification_steps(compiled), max(3, options.repeats // 40))
    return tables


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=400, help="of the small network (400)")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch (1)")
    parser.add_argument("--small-only", action="store_true", help="leave the classifier out")
    parser.add_argument("--no-compiled", action="store_true", help="leave compiled=True out")
    parser.add_argument("--no-validation", action="store_true", help="Pyro's validation off")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is too large")
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
    return steps


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


def measure(steps: dict[str, Step], repeats: int) -> dict[str, float]:
    """Seconds of the fastest of the interleaved repeats, by contender."""
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(repeats + 3):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def show(title: str, seconds: dict[str, float]) -> list[str]:
    """Print a table; returns the contenders that are slower than allowed."""
    reference, slow = next(iter(seconds.values())), []
    print(f"\n{title:38s} {'ms':>8s} {'ratio':>7s} {'limit':>6s}")
    for name, value in seconds.items():
        ratio, limit = value / reference, THRESHOLDS.get(title, {}).get(name)
        print(f"{name:38s} {1e3 * value:8.3f} {ratio:7.2f} {limit or '':>6}")
        if limit and ratio > limit:
            slow.append(f"{title}: {name} {ratio:.2f} > {limit}")
    return slow


if __name__ == "__main__":
    main()
