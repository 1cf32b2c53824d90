"""Accuracy of the ELBO in closed form against Monte Carlo, at trained parameters.

    OMP_NUM_THREADS=1 python benchmarks/elbo_accuracy.py

Small networks are trained on scikit-learn's diabetes data with diagonal covariance; then the ELBO
is evaluated with full and with diagonal covariance and compared with the average over draws of the
weights. The Monte Carlo reference draws the expected log-likelihood and takes the KL divergence in
closed form: its expectation is that of Pyro's Trace_ELBO, its error much smaller. With --explain
the moments of the network's output by draws (`moment_accuracy`) take the place of the propagated
ones in the ELBO: if these are the difference, none is left. Priors are Normal(0, 1), because for an
empirical-Bayes prior the two differ by definition: the deterministic ELBO puts in the optimal
variance, Trace_ELBO the Student-t marginal.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial

import host_pyro as host
import hosts
import numpy as np
import torch
from models import observed, perceptron, standard
from nuts_comparison import diabetes

from moment_calculus.objectives.by_draws import pooled_energy
from pyro_moments import DeterministicELBO, DVIGuide, Fit, fit, moment_accuracy

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
CHUNK = 500  # draws at a time
NOISE = 0.7  # close to what the data leave unexplained
HEADINGS = "hidden layers | covariance | ELBO | Monte Carlo | difference | in standard errors"
EXPLAINED = " | by sampled moments of the output | left, in standard errors"


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    network: str
    covariance: str
    elbo: float
    sampled: float
    standard_error: float
    explained: float | None = None

    def __str__(self) -> str:
        difference = self.elbo - self.sampled
        text = f"| {self.network} | {self.covariance} | {self.elbo:.2f} | {self.sampled:.2f} ± "
        text += f"{self.standard_error:.2f} | {100 * difference / abs(self.sampled):+.2f} % "
        text += f"| {difference / self.standard_error:+.1f} |"
        if self.explained is None:
            return text
        left = (self.explained - self.sampled) / (math.sqrt(2) * self.standard_error)
        return f"{text} {self.explained:.2f} | {left:+.1f} |"


def main(arguments: list[str] | None = None) -> None:
    options, results = parse(arguments), []
    torch.set_num_threads(1)
    data = tuple(torch.as_tensor(part, dtype=torch.float32) for part in diabetes())
    headings = HEADINGS + EXPLAINED * options.explain
    print(f"| {headings} |\n" + "|---" * (headings.count("|") + 1) + "|")
    for depth, name in itertools.product(options.depths, ACTIVATIONS):
        sizes = (data[0].shape[1], *[options.units] * depth, 1)
        outputs = partial(perceptron, host, standard(host), sizes, activation=ACTIVATIONS[name])
        model = observed(host, outputs, lambda f: host.dist.Normal(f[..., 0], NOISE))
        for result in compared(f"{depth} × {name}", model, data, options):
            print(result, flush=True)
            results.append(asdict(result))
    hosts.write(options.out, results)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--out")
    parser.add_argument("--samples", type=int, default=20_000, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of training (%(default)s)")
    parser.add_argument("--units", type=int, default=30, help="per hidden layer (%(default)s)")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 3], help="hidden layers (1 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--explain", action="store_true", help="by moments of the output")
    return parser.parse_args(arguments)


def compared(
    name: str, model: Callable, data: tuple[torch.Tensor, ...], options: argparse.Namespace
) -> Iterator[Result]:
    """Train a network, and compare both covariances with draws."""
    host.fresh(options.seed)
    diagonal, times = DeterministicELBO(covariance="diagonal"), options.samples // CHUNK
    training = {"steps": options.steps, "progress_bar": False, "by_draws": False}
    trained = fit(model, DVIGuide(), *data, objective=diagonal, **training)
    terms = host.terms_by_draws(diagonal, model, trained, data, CHUNK, times)
    loss, error = pooled_energy(terms, alpha=0.0)
    for covariance in ("full", "diagonal"):
        elbo = -DeterministicELBO(covariance=covariance).loss(model, trained.guide, *data)
        row = Result(name, covariance, elbo, -loss, error)
        if options.explain:
            change = moved_likelihood(model, trained, data, covariance, options.samples)
            row = replace(row, explained=elbo + change)
        yield row


def moved_likelihood(
    model: Callable, trained: Fit, data: tuple[torch.Tensor, ...], covariance: str, draws: int
) -> float:
    """How E log N(y; f, s) changes where the moments of the output f by draws replace ours."""
    accuracy = moment_accuracy(model, trained, *data, num_samples=draws, covariance=covariance)
    row, y = accuracy["obs.loc"], data[1].double().numpy()
    ours = np.square(y - row.mean) + np.square(row.standard_deviation)
    sampled = np.square(y - row.sampled_mean) + np.square(row.sampled_standard_deviation)
    return float((ours - sampled).sum() / (2 * NOISE**2))


if __name__ == "__main__":
    main()
