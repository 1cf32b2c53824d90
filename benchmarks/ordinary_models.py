"""Steps of ordinary regressions: one ELBO with its gradient, against the host's sampled ELBO.

    OMP_NUM_THREADS=1 python benchmarks/ordinary_models.py [--host numpyro] [--check]

Regressions of P = 20 covariates with each likelihood, a gamma-Poisson regression of 60 rows, and
three models of the examples of NumPyro. The reference is TraceMeanField_ELBO with AutoNormal and
one particle, in turn with ours in one process, on one thread. In Pyro the minimum over the repeats
counts, in NumPyro, where everything runs under jax.jit, the median; first steps are there compared
too (the time of tracing and compiling). Of a million rows the memory of a step is compared too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import hosts
import numpy as np
from models import closed_form, observed, reference, standard
from timing import REFERENCE, Table, measure, report

ROWS, COVARIATES, SMALL = 10_000, 20, (60, 3)
LARGE, LARGE_LIMIT, MEMORY = 1_000_000, {"pyro": 2.0, "numpyro": 1.5}, 2.0
CLOSED = "DeterministicELBO + DVIGuide"
FIRST_STEP = 0.9  # largest ratio of the times that tracing and compiling take
LIMITS = {
    "Bernoulli": {"pyro": 1.1, "numpyro": 1.5},
    "Poisson": {"pyro": 1.5, "numpyro": 1.5},
    "NegativeBinomial": {"pyro": 3.0, "numpyro": 1.5},
    "StudentT": {"pyro": 3.0, "numpyro": 2.0},
    "Gamma": {"pyro": 4.0, "numpyro": 4.0},
    "OrderedLogistic": {"pyro": 4.0, "numpyro": 4.0},
    "GammaPoisson": {"pyro": 4.0, "numpyro": 4.0},
}
EXAMPLE = 1.5  # largest ratio of the examples


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load(options.host, threads=1)
    with host.own_parameters():
        report(tables(host, options), options)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--only", "--check", "--out")
    parser.add_argument("--repeats", type=int, default=30, help="of a regression (30)")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of a regression ({ROWS})")
    return parser.parse_args(arguments)


def tables(host: ModuleType, options: argparse.Namespace) -> Iterator[Table]:
    for name, rows, covariates, repeats in plan(options):
        title = f"{name}, {rows} x {covariates}"
        if options.only in title:
            made = regression(host, name, rows, covariates)
            first = FIRST_STEP if rows == options.rows and name == "Bernoulli" else None
            limits = LARGE_LIMIT if rows == LARGE else LIMITS[name]
            yield from both(host, title, *made, repeats, limits[options.host], first)
    examples = {} if options.host == "pyro" else EXAMPLES
    for name, make in examples.items():
        if options.only in name:
            made = make(host)
            yield from both(host, name, *made, 20 * options.repeats, EXAMPLE, FIRST_STEP)


def plan(options: argparse.Namespace) -> Iterator[tuple[str, int, int, int]]:
    """Likelihoods, rows, covariates, and repeats."""
    for name in LIMITS:
        yield name, options.rows, COVARIATES, options.repeats
    yield "Bernoulli", LARGE, COVARIATES, max(3, options.repeats // 10)
    if options.host == "pyro":
        yield "GammaPoisson", *SMALL, 5 * options.repeats


def both(
    host: ModuleType,
    title: str,
    model: Callable,
    data: tuple,
    repeats: int,
    limit: float,
    first_limit: float | None,
) -> Iterator[Table]:
    """Times of a step, and in NumPyro of the first one."""
    made = {
        REFERENCE: host.elbo_step(*reference(host, REFERENCE), model, data),
        CLOSED: host.elbo_step(*closed_form(host, "full"), model, data),
    }
    contenders = {name: step for name, (step, _) in made.items()}
    yield Table(title, measure(contenders, repeats, host.summary), {CLOSED: limit})
    if len(data[0]) == LARGE:
        peaks = {name: host.workspace(step) / 1e9 for name, step in contenders.items()}
        yield Table(f"MB for ms, {title}", peaks, {CLOSED: MEMORY})
    if host.NAME == "NumPyro":
        seconds = {name: first for name, (_, first) in made.items()}
        limits = {CLOSED: first_limit} if first_limit else {}
        yield Table(f"first step, {title}", seconds, limits)


def outcome(host: ModuleType, name: str, f: Any) -> Any:
    """The distribution of an outcome, given its linear predictor."""
    dist, exp = host.dist, host.np.exp
    return {
        "Bernoulli": lambda: dist.Bernoulli(logits=f),
        "Poisson": lambda: dist.Poisson(exp(f)),
        "NegativeBinomial": lambda: dist.NegativeBinomial(5.0, logits=f),
        "StudentT": lambda: dist.StudentT(4.0, f, 0.5),
        "Gamma": lambda: dist.Gamma(2.0, 2.0 * exp(-f)),
        "OrderedLogistic": lambda: dist.OrderedLogistic(f, host.array([-1.0, 0.0, 1.0])),
        "GammaPoisson": lambda: dist.GammaPoisson(3.0, 3.0 * exp(-f)),
    }[name]()


def regression(host: ModuleType, name: str, rows: int, covariates: int) -> tuple[Callable, tuple]:
    def predictor(x: Any) -> Any:
        intercept = host.sample("intercept", host.dist.Normal(0.0, 2.0))
        return intercept + x @ host.sample("slopes", standard(host)([covariates]))

    model = observed(host, predictor, lambda f: outcome(host, name, f))
    x = host.normal(0, rows, covariates)
    return model, (x, host.simulated(model, x))


def network(host: ModuleType) -> tuple[Callable, tuple]:
    """Two hidden layers of 5 units and tanh, the noise's precision Gamma distributed."""

    def model(x: Any, y: Any) -> None:
        for place, shape in enumerate([(3, 5), (5, 5), (5, 1)]):
            prior = host.dist.Normal(host.np.zeros(shape), host.np.ones(shape))
            weight = host.sample(f"weight{place}", prior)
            x = (host.np.tanh(x) if place else x) @ weight
        scale = 1.0 / host.np.sqrt(host.sample("precision", host.dist.Gamma(3.0, 1.0)))
        with host.plate("data", len(y)):
            host.sample("obs", host.dist.Normal(x, scale).to_event(1), obs=y)

    x = np.linspace(-1, 1, 50, dtype=np.float32)[:, None]
    return model, (host.array(x ** np.arange(3)), host.array(np.sin(3 * x)))


def proportions(host: ModuleType) -> tuple[Callable, tuple]:
    """A probability with a uniform prior for each binomial count."""

    def model(total: Any, y: Any) -> None:
        with host.plate("groups", len(total)):
            p = host.sample("p", host.dist.Uniform(0.0, 1.0))
            host.sample("obs", host.dist.Binomial(total, p), obs=y)

    return model, (host.array(np.full(20, 50)), host.array(np.arange(15, 35)))


def horseshoe(host: ModuleType) -> tuple[Callable, tuple]:
    """Linear regression with a horseshoe prior, its noise's precision Gamma distributed."""
    sample, dist = host.sample, host.dist

    def model(x: Any, y: Any) -> None:
        ones = host.np.ones(x.shape[1])
        local = sample("lambdas", dist.HalfCauchy(ones))
        overall = sample("tau", dist.HalfCauchy(host.np.ones(1)))
        slopes = sample("unscaled", dist.Normal(0.0, ones))
        scale = 1.0 / host.np.sqrt(sample("precision", dist.Gamma(3.0, 1.0)))
        with host.plate("data", len(y)):
            sample("obs", dist.Normal(x @ (overall * local * slopes), scale), obs=y)

    x = host.normal(0, 100, 20)
    return model, (x, x[:, 0] - 2 * x[:, 1])


EXAMPLES = {
    "network 3-5-5-1, 50 rows": network,
    "Uniform x Binomial, 20 groups": proportions,
    "horseshoe, 100 x 20": horseshoe,
}


if __name__ == "__main__":
    main()
