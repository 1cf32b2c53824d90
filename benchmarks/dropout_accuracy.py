"""Accuracy of analytic dropout: pre-activations of a network against those under drawn masks.

    OMP_NUM_THREADS=1 python benchmarks/dropout_accuracy.py

A network 784-300-100-10 with relu is trained with dropout on scikit-learn's digits, enlarged to
28 × 28 pixels. MCDropoutGuide takes its weights, and `moment_accuracy` compares the pre-activations
of every layer with those of draws. Reported are, for each probability to drop and each layer,

- the geometric mean of σ/σ* over units and images, σ* being the deviation under drawn masks
  (Shekhovtsov et al. 2018, ε_σ), and the mean of |μ − μ*|/σ*;
- for the first layer, means and deviations of more masks: the root mean square of the errors in
  standard errors, which is one, and the largest of them.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import asdict, dataclass
from functools import partial

import hosts
import numpy as np
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro.infer.autoguide import init_to_value
from sklearn.datasets import load_digits
from torch import Tensor, nn

from pyro_moments import MCDropoutGuide, MomentAccuracy, moment_accuracy

SIZES = [784, 300, 100, 10]


@dataclass(frozen=True)
class Result:
    """One layer under one probability to drop."""

    p: float
    layer: int
    deviation_ratio: float
    mean_error: float
    rms_standard_errors: float | None = None
    largest_standard_error: float | None = None
    share_beyond_three: float | None = None


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    torch.manual_seed(0)
    images, classes = digits(options.sizes[0])
    results = []
    for p in options.p:
        layers = trained(options.sizes, p, images, classes, options.steps)
        results += measured(layers, p, images[: options.images], options)
    report(results)
    hosts.write(options.out, [asdict(row) for row in results])


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--out")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--p", type=float, nargs="+", default=[0.2, 0.5])
    parser.add_argument("--images", type=int, default=4)
    parser.add_argument("--masks", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=100_000, help="masks of the first layer")
    parser.add_argument("--steps", type=int, default=300, help="of training")
    return parser.parse_args(arguments)


def digits(pixels: int) -> tuple[Tensor, Tensor]:
    images, classes = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    side = round(pixels**0.5)
    return F.interpolate(images, (side, side)).flatten(1), torch.tensor(classes)


def trained(sizes: list[int], p: float, x: Tensor, y: Tensor, steps: int) -> list[nn.Linear]:
    layers = [nn.Linear(n, m) for n, m in itertools.pairwise(sizes)]
    optimiser = torch.optim.Adam([w for layer in layers for w in layer.parameters()], lr=1e-3)
    for _ in range(steps):
        rows = torch.randint(len(x), (128,))
        h = x[rows]
        for place, layer in enumerate(layers):
            h = layer(F.dropout(torch.relu(h) if place else h, p))
        optimiser.zero_grad()
        F.cross_entropy(h, y[rows]).backward()
        optimiser.step()
    return layers


def network(layers: list[nn.Linear], x: Tensor) -> None:
    """The pre-activations of each layer, under random weights."""
    for place, layer in enumerate(layers):
        w, b = (
            pyro.sample(f"{name}{place}", dist.Normal(0.0, 1.0).expand(v.shape).to_event(v.dim()))
            for name, v in (("weight", layer.weight), ("bias", layer.bias))
        )
        x = F.linear(torch.relu(x) if place else x, w, b)
        pyro.deterministic(f"layer{place}", x)


def measured(layers: list[nn.Linear], p: float, x: Tensor, options: argparse.Namespace) -> list:
    by_layer = accuracy(layers, p, x, options.masks)
    of_first, results = accuracy(layers[:1], p, x, options.first), []
    for place in range(len(layers)):
        measures = by_layer[f"layer{place}"].measures
        errors = measures.deviation_ratio.value, measures.mean_error.value
        in_standard_errors = () if place else standard_errors(of_first)
        results.append(Result(p, place + 1, *errors, *in_standard_errors))
    return results


def accuracy(layers: list[nn.Linear], p: float, x: Tensor, masks: int) -> MomentAccuracy:
    """Moments of all layers with trained weights, beside those of so many drawn masks."""
    pyro.clear_param_store()
    values = {
        f"{name}{place}": value.detach()
        for place, layer in enumerate(layers)
        for name, value in layer.named_parameters()
    }
    guide = MCDropoutGuide(p=p, init_loc_fn=init_to_value(values=values))
    return moment_accuracy(partial(network, layers), guide, x, num_samples=masks)


def standard_errors(of_first: MomentAccuracy) -> tuple[float, float, float]:
    """Errors of means and deviations of the first layer in standard errors."""
    row = of_first["layer0"]
    errors = (
        row.mean - row.sampled_mean,
        row.standard_deviation - row.sampled_standard_deviation,
    )
    z = np.abs(np.stack(errors) / np.stack(row.standard_errors))
    return float(np.sqrt(np.square(z).mean())), float(z.max()), float((z > 3).mean())


def report(results: list[Result]) -> None:
    print("| p | layer | σ/σ* | mean error | in standard errors |")
    print("|---|---|---|---|---|")
    for row in results:
        errors = ""
        if row.rms_standard_errors is not None:
            errors = f"rms {row.rms_standard_errors:.2f}, largest {row.largest_standard_error:.1f}"
            errors += f", beyond three {100 * row.share_beyond_three:.2f} %"
        ours = f"{row.deviation_ratio:.4f} | {row.mean_error:.4f}"
        print(f"| {row.p} | {row.layer} | {ours} | {errors} |")


if __name__ == "__main__":
    main()
