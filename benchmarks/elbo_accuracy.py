"""Accuracy of the ELBO in closed form against Monte Carlo, at trained parameters.

    OMP_NUM_THREADS=1 python benchmarks/elbo_accuracy.py

Small networks are trained on scikit-learn's diabetes data with diagonal covariance; then the ELBO
is evaluated with full and with diagonal covariance and compared with the average over samples of
the weights. The Monte Carlo reference samples the expected log-likelihood and takes the KL
divergence in closed form: its expectation is that of Pyro's Trace_ELBO, its error much smaller.
With --explain the ELBO is computed once more, with the moments of the network's output by draws
(`moment_accuracy`) in the place of the propagated ones: if these are the difference, none is left.
Priors are Normal(0, 1), because for an empirical-Bayes prior the two differ by definition: the
deterministic ELBO puts in the optimal variance, Trace_ELBO the Student-t marginal.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import hosts
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from sklearn.datasets import load_diabetes
from torch import Tensor

from pyro_moments import SVI, DeterministicELBO, DVIGuide, moment_accuracy

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
CHUNK = 500  # samples at a time
NOISE = 0.7  # close to what the data leave unexplained


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    network: str
    covariance: str
    elbo: float
    sampled: float
    standard_error: float
    explained: float | None = None

    @property
    def left(self) -> float | None:
        """What the output's moments do not explain, in standard errors of both averages."""
        if self.explained is None:
            return None
        return (self.explained - self.sampled) / (math.sqrt(2) * self.standard_error)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.set_num_threads(1)
    x, y = diabetes()
    results = []
    for depth, name in itertools.product(options.depths, ACTIVATIONS):
        pyro.clear_param_store()
        pyro.set_rng_seed(options.seed)
        sizes = (x.shape[1], *[options.units] * depth, 1)
        results += compare(Network(sizes, ACTIVATIONS[name]), f"{depth} × {name}", x, y, options)
    print(markdown(results))
    hosts.write(options.out, [asdict(row) for row in results])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--out")
    parser.add_argument("--samples", type=int, default=20_000, help="(%(default)s)")
    parser.add_argument("--steps", type=int, default=500, help="of training (%(default)s)")
    parser.add_argument("--units", type=int, default=30, help="per hidden layer (%(default)s)")
    parser.add_argument("--depths", type=int, nargs="+", default=[1, 3], help="hidden layers (1 3)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--explain", action="store_true", help="by moments of the output")
    return parser.parse_args(arguments)


def diabetes() -> tuple[Tensor, Tensor]:
    """Standardised inputs [442, 10] and target [442]."""
    x, y = (torch.tensor(a, dtype=torch.float32) for a in load_diabetes(return_X_y=True))
    return (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()


class Network:
    """Fully connected network as a Pyro model; `outputs` serves sampled weights too."""

    def __init__(self, sizes: tuple[int, ...], activation: Callable) -> None:
        self.sizes, self.activation = sizes, activation

    def __call__(self, x: Tensor, y: Tensor) -> None:
        loc = self.outputs(self.weights(), x)
        with pyro.plate("data", len(x)):
            pyro.sample("obs", dist.Normal(loc, NOISE), obs=y)

    def weights(self) -> dict[str, Tensor]:
        shapes = {}
        for k, (inputs, outputs) in enumerate(itertools.pairwise(self.sizes)):
            shapes |= {f"weight{k}": [outputs, inputs], f"bias{k}": [outputs]}
        prior = dist.Normal(0.0, 1.0)
        return {
            name: pyro.sample(name, prior.expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }

    def outputs(self, weights: dict[str, Tensor], x: Tensor) -> Tensor:
        for k in range(len(self.sizes) - 1):
            x = self.activation(x) if k else x
            x = F.linear(x, weights[f"weight{k}"], weights[f"bias{k}"])
        return x.squeeze(-1)


def compare(
    model: Network, name: str, x: Tensor, y: Tensor, options: argparse.Namespace
) -> list[Result]:
    guide = DVIGuide(model)
    svi = SVI(model, guide, DeterministicELBO(covariance="diagonal"))
    for _ in range(options.steps):
        svi.step(x, y)
    data = model, guide, x, y
    sampled, results = sampled_elbo(*data, options.samples), []
    for kind in ("full", "diagonal"):
        elbo = -DeterministicELBO(covariance=kind).loss(*data)
        explained = explained_elbo(*data, kind, options.samples) if options.explain else None
        results.append(Result(name, kind, elbo, *sampled, explained))
    return results


@torch.no_grad()
def explained_elbo(
    model: Network, guide: DVIGuide, x: Tensor, y: Tensor, covariance: str, samples: int
) -> float:
    """The ELBO with the moments of the output by draws; E log N(y; f, s) needs no others."""
    row = moment_accuracy(model, guide, x, y, num_samples=samples, covariance=covariance)["obs.loc"]
    mean, deviation = map(torch.from_numpy, (row.sampled_mean, row.sampled_standard_deviation))
    terms = dist.Normal(mean, NOISE).log_prob(y.double()) - (deviation / NOISE) ** 2 / 2
    return float(terms.sum() - divergence(guide))


@torch.no_grad()
def sampled_elbo(
    model: Network, guide: DVIGuide, x: Tensor, y: Tensor, samples: int
) -> tuple[float, float]:
    """Mean over samples of the weights, and its standard error."""
    outputs, parts = torch.vmap(model.outputs, in_dims=(0, None)), []
    for start in range(0, samples, CHUNK):
        weights = guide.sample_posterior(min(CHUNK, samples - start))
        densities = dist.Normal(outputs(weights, x), NOISE).log_prob(y)
        parts.append(densities.double().sum(-1))
    log_likelihoods = torch.cat(parts)
    mean = log_likelihoods.mean() - divergence(guide)
    return float(mean), float(log_likelihoods.std() / math.sqrt(samples))


def divergence(guide: DVIGuide) -> Tensor:
    """KL divergence to the standard normal prior, by torch's own formula."""
    trace = pyro.poutine.trace(guide).get_trace()
    prior = torch.distributions.Normal(0.0, 1.0)
    return sum(
        torch.distributions.kl_divergence(site["fn"].base_dist, prior).double().sum()
        for _, site in trace.iter_stochastic_nodes()
    )


def markdown(results: list[Result]) -> str:
    headings = "hidden layers | covariance | ELBO | Monte Carlo | difference | in standard errors"
    explained = any(row.explained is not None for row in results)
    headings += " | by sampled moments of the output | left, in standard errors" * explained
    lines = [f"| {headings} |", "|---" * (headings.count("|") + 1) + "|", *map(line, results)]
    return "\n".join(lines)


def line(row: Result) -> str:
    difference = row.elbo - row.sampled
    cells = [
        row.network,
        row.covariance,
        f"{row.elbo:.2f}",
        f"{row.sampled:.2f} ± {row.standard_error:.2f}",
        f"{100 * difference / abs(row.sampled):+.2f} %",
        f"{difference / row.standard_error:+.1f}",
    ]
    if row.left is not None:
        cells += [f"{row.explained:.2f}", f"{row.left:+.1f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
