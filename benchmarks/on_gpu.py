"""Losses, gradients, fits and predictions on a GPU: equal to the processor's? And how long?

    python benchmarks/on_gpu.py [--host numpyro] [--only tanh] [--out gpu.json] [--no-times]

Every case is evaluated on the processor, then with the same parameters on the GPU. What the two
differ by is relative to the largest entry. Draws are other numbers on a GPU in Pyro: what is drawn
is compared by the mean of some losses, in standard errors. Times are those of a loss with its
gradients, on either device, against the host's sampled ELBO there.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import hosts
import models
import numpy as np
from timing import measure

LARGE = (784, 400, 400, 10)
DRAWS = 64
LIMITS = {"float32": 2e-4, "float64": 1e-9}
random = np.random.default_rng(0)
X = random.normal(size=(64, 13))
Y, CLASSES, COUNTS = X[:, 0] + 0.1 * X[:, 1], np.arange(64) % 5, np.arange(64) % 4
GROUPS = np.arange(64) % 8


@dataclass(frozen=True)
class Case:
    """A model with its data, a guide and an objective, all made on the device that is asked."""

    model: Callable[[], Callable]
    y: np.ndarray
    guide: Callable[..., Any]
    objective: Any
    losses: int = 1  # several where the loss has noise


def counts(host: ModuleType) -> Callable:
    """Counts with an overdispersion that is not known."""

    def model(x: Any, y: Any = None) -> None:
        rate = host.np.exp(0.3 * models.linear(host)(x))
        shape = host.sample("shape", host.dist.LogNormal(0.0, 0.5))
        with host.plate("data", len(x)):
            likelihood = host.dist.GammaPoisson(shape, shape / rate)
            host.sample("obs", likelihood, obs=y)

    return model


def slopes(host: ModuleType) -> Callable:
    """Intercepts and slopes of groups with a common covariance."""

    def model(x: Any, y: Any = None) -> None:
        prior = host.dist.LogNormal(0.0, 0.5).expand([2]).to_event(1)
        factor = host.sample("factor", host.dist.LKJCholesky(2, 1.5))
        scale_tril = host.sample("scales", prior)[:, None] * factor
        groups = host.array(GROUPS)
        with host.plate("groups", 8):
            normal = host.dist.MultivariateNormal(host.np.zeros(2), scale_tril=scale_tril)
            both = host.sample("both", normal)
        with host.plate("data", len(x)):
            mean = both[groups, 0] + both[groups, 1] * x[:, 0]
            host.sample("obs", host.dist.Normal(mean, 1.0), obs=y)

    return model


def cases(host: ModuleType) -> dict[str, Case]:
    """What is compared: activations, guides, objectives, likelihoods."""
    package, autoguide = host.package, host.infer.autoguide
    elbo, energy, renyi = package.DeterministicELBO, package.BBAlphaELBO, package.RenyiELBO
    full = elbo()

    def net(activation: str, outputs: int, observed: Callable) -> Callable[[], Callable]:
        sizes = 13, 8, 8, outputs
        return lambda: observed(host, host.network(sizes, host.activation(activation)))

    relu = net("relu", 1, models.regression)
    guides = {
        "tridiagonal": package.TridiagonalGuide,
        "dropout": package.MCDropoutGuide,
        "AutoNormal": autoguide.AutoNormal,
        "AutoMultivariateNormal": autoguide.AutoMultivariateNormal,
    }
    objectives = {
        "diagonal": (elbo(covariance="diagonal"), 1),
        "sampled": (elbo(propagation="sampled"), DRAWS),
        "BB-α": (energy(0.5), 1),
        "BB-α sampled": (energy(0.5, propagation="sampled", num_particles=4), DRAWS),
        "Rényi": (renyi(0.5), DRAWS),
    }
    names = "relu", "tanh", "gelu", "softplus", "sigmoid"
    found = {
        name: Case(net(name, 1, models.regression), Y, package.DVIGuide, full) for name in names
    }
    found |= {name: Case(relu, Y, guide, full) for name, guide in guides.items()}
    found |= {
        name: Case(relu, Y, package.DVIGuide, objective, losses)
        for name, (objective, losses) in objectives.items()
    }
    others = {
        "two heads": (net("relu", 2, models.two_heads), Y),
        "classifier": (net("relu", 5, models.classification), CLASSES),
        "regression": (lambda: models.regression_by(host, models.linear(host)), Y),
        "counts": (lambda: counts(host), COUNTS),
        "varying slopes": (lambda: slopes(host), Y),
    }
    return found | {name: Case(*made, package.DVIGuide, full) for name, made in others.items()}


def main(arguments: list[str] | None = None) -> None:
    parser = hosts.parser(__doc__, "--host", "--only", "--out")
    parser.add_argument("--no-times", action="store_true", help="compare only")
    parser.add_argument("--gpu", default="cuda", help="name of the second device (cuda)")
    parser.add_argument("--workers", type=int, default=2, help="processes that compare (2)")
    options = parser.parse_args(arguments)
    host = hosts.load(options.host)
    device = importlib.import_module(f"on_gpu_{options.host}")
    content: dict[str, Any] = {"of": hosts.described(options.host)}
    content["of"]["gpu"] = device.described(options.gpu)
    names = [name for name in cases(host) if options.only in name]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, spawn, max_tasks_per_child=1) as pool:
        parts = list(pool.map(compared, itertools.repeat(options), names))
    content["differences"] = dict(itertools.chain(*(part.items() for part in parts)))
    if not options.no_times:
        content["times"] = list(timed(host, device, options))
    hosts.write(options.out, content)
    failed = [title for title, found in content["differences"].items() if exceeds(title, found)]
    if failed:
        sys.exit(f"not equal, or failed: {', '.join(failed)}")


def compared(options: argparse.Namespace, name: str) -> dict[str, dict]:
    """Differences of one case in both precisions."""
    host, found = hosts.load(options.host), {}
    device = importlib.import_module(f"on_gpu_{options.host}")
    for precision in LIMITS:
        title = f"{name}, {precision}"
        try:
            found[title] = one(device, cases(host)[name], precision, options.gpu)
        except Exception as error:
            traceback.print_exc(limit=-4)
            found[title] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        bad = "!" if exceeds(title, found[title]) else ""
        print(f"{title:32s} {found[title]} {bad}", flush=True)
    return found


def exceeds(title: str, found: dict[str, Any]) -> bool:
    """Standard errors may be five, other differences the limit; a NaN is too large."""
    limit = LIMITS[title.split(", ")[-1]]
    limits = {name: 5.0 if name == "standard errors" else limit for name in found}
    return "error" in found or not all(found[name] < limits[name] for name in found)


def one(device: ModuleType, case: Case, precision: str, gpu: str) -> dict[str, float]:
    """What a loss, its gradients and the predictions after some steps differ by."""
    here = device.evaluated(case, X, precision, "cpu", None)
    there = device.evaluated(case, X, precision, gpu, here.parameters)
    if case.losses > 1:
        spread = np.sqrt((here.losses.var() + there.losses.var()) / case.losses)
        return {"standard errors": abs(here.losses.mean() - there.losses.mean()) / spread}
    return {
        "loss": relative(here.losses, there.losses),
        "gradients": max(relative(g, there.gradients[n]) for n, g in here.gradients.items()),
        "mean": relative(here.mean, there.mean),
        "variance": relative(here.variance, there.variance),
    }


def relative(here: np.ndarray, there: np.ndarray) -> float:
    """The largest difference, of the largest entry."""
    return float(np.max(np.abs(here - there)) / max(float(np.max(np.abs(here))), 1e-12))


def timed(
    host: ModuleType, device: ModuleType, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Seconds of a loss with its gradients by contender, model and device."""
    for title, make, contenders, repeats in measured(host):
        if options.only not in title:
            continue
        for place in ("cpu", options.gpu):
            with device.on(place, "float32"):
                model, data = make()
                steps = {}
                for name, (objective, guide) in contenders.items():
                    step, first = host.elbo_step(objective, guide, model, data)
                    steps[name] = device.synchronised(step)
                    print(f"{title}, {place}, {name}: first {first:.1f} s", flush=True)
                count = repeats if place != "cpu" else 3
                seconds = measure(steps, count, host.summary, time.perf_counter)
            row = {"model": title, "device": place, "seconds": seconds}
            print(row, flush=True)
            yield row


def measured(host: ModuleType) -> Iterator[tuple[str, Callable, dict, int]]:
    """Title, maker of model and data on the current device, contenders, repeats on the GPU."""
    reference = "Trace_ELBO + AutoNormal"
    both = {reference: models.reference(host, reference)}
    both |= {c: models.closed_form(host, c) for c in ("full", "diagonal")}
    diagonal = {name: both[name] for name in (reference, "diagonal")}
    if host.NAME == "Pyro":
        both["full, compiled"] = models.closed_form(host, "full", compiled=True)
        diagonal["diagonal, compiled"] = models.closed_form(host, "diagonal", compiled=True)

    def small() -> tuple[Callable, tuple]:
        data = host.array(X.astype("f")), host.array(Y.astype("f"))
        return models.regression(host, host.network((13, 50, 1))), data

    def classifier(rows: int) -> Callable:
        def make() -> tuple[Callable, tuple]:
            x = np.random.default_rng(0).random((rows, LARGE[0])).astype("f")
            data = host.array(x), host.array(np.arange(rows) % 10)
            return models.classification(host, host.network(LARGE)), data

        return make

    def rows() -> tuple[Callable, tuple]:
        x = np.random.default_rng(0).normal(size=(10**6, 20)).astype("f")
        data = host.array(x), host.array(x[:, 0])
        return models.regression_by(host, models.linear(host)), data

    yield "13-50-1, 64 rows", small, both, 50
    yield "784-400-400-10, 128 rows", classifier(128), diagonal, 20
    yield "784-400-400-10, 8192 rows", classifier(8192), diagonal, 10
    yield "regression, 20 covariates, 10⁶ rows", rows, {k: both[k] for k in (reference, "full")}, 10


if __name__ == "__main__":
    main()
