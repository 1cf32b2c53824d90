"""Linear response, and the fit before it, in gradient evaluations of the same run.

    python benchmarks/response_time.py [--backend numpyro] [--check]

A logistic regression of 10⁵ rows and 20 columns, and a hierarchy of 10⁵ groups with a latent each.
"""

from __future__ import annotations

import argparse
import importlib
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from moment_calculus.response.inverse_curvature import InverseCurvature

ROWS, COLUMNS, TRIALS = 10**5, 20, 5
REGRESSION_LIMIT, HIERARCHY_LIMIT = 100, 60  # gradient evaluations


def logistic(host: Any) -> tuple[Callable, list[Any]]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=[ROWS, COLUMNS])
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-x @ rng.normal(size=COLUMNS) / 4))).astype(float)

    def model(x: Any, y: Any) -> None:
        weight = host.language.sample(
            "weight", host.dist.Normal(0.0, 1.0).expand([COLUMNS]).to_event(1)
        )
        with host.language.plate("rows", ROWS):
            host.language.sample("obs", host.dist.Bernoulli(logits=x @ weight), obs=y)

    return model, [x, y]


def hierarchy(host: Any) -> tuple[Callable, list[Any]]:
    rng = np.random.default_rng(0)
    chances = 1 / (1 + np.exp(-rng.normal(1, 0.7, size=[ROWS, 1])))
    y = (rng.random([ROWS, TRIALS]) < chances).astype(float)
    language, dist = host.language, host.dist

    def model(y: Any) -> None:
        centre = language.sample("centre", dist.Normal(0.0, 5.0))
        scale = language.sample("scale", dist.HalfCauchy(2.0))
        with language.plate("groups", ROWS, dim=-2):
            effect = language.sample("effect", dist.Normal(centre, scale))
            with language.plate("trials", TRIALS, dim=-1):
                language.sample("obs", dist.Bernoulli(logits=effect), obs=y)

    return model, [y]


def measured(module: ModuleType, name: str, model: Callable, data: list[Any]) -> tuple[float, ...]:
    """The fit and the response in gradient evaluations; prints a row."""
    with module.doubles():
        data = [module.HOST.array(part) for part in data]
        fit = module.fresh_fit(0, model, *data, method="lbfgs", float64=True)
        start = time.perf_counter()
        response = module.response_of(model, fit, data)
        cold = time.perf_counter() - start
        problem = response._problem
        elsewhere = partial(_elsewhere, problem)
        gradient = min(_seconds(elsewhere) for _ in range(10))
        warm = min(_seconds(lambda: InverseCurvature(problem, 1.0), elsewhere) for _ in range(3))
    ours = fit.seconds["fitting"] / gradient, warm / gradient
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{name:10s} gradient {1e3 * gradient:.1f} ms, fit {ours[0]:.0f} ({fit.steps} steps), "
        f"response {ours[1]:.0f} gradients (first call {cold:.1f} s), peak memory {memory:.1f} GiB",
        flush=True,
    )
    return ours


def _elsewhere(problem: Any) -> None:
    """A gradient at another place: what is known of the last one is forgotten."""
    noise = 1e-9 * np.random.default_rng().normal(size=problem.parameters.size)
    problem.objective.value_and_slope(problem.parameters + noise)


def _seconds(run: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    before()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=("pyro", "numpyro"), default="pyro")
    parser.add_argument("--check", action="store_true", help="fail above the limits")
    options = parser.parse_args()
    module = importlib.import_module(f"posteriors_{options.backend}")
    regression = sum(measured(module, "logistic", *logistic(module.HOST)))
    _, response = measured(module, "hierarchy", *hierarchy(module.HOST))
    slow = regression > REGRESSION_LIMIT or response > HIERARCHY_LIMIT
    sys.exit("slower than it should be" if options.check and slow else 0)


if __name__ == "__main__":
    main()
