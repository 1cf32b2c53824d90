"""Accuracy of analytic dropout: pre-activations of a network against those under drawn masks.

    OMP_NUM_THREADS=1 python benchmarks/dropout_accuracy.py

A network 784-300-100-10 with relu is trained with dropout on scikit-learn's digits, drawn out to
28 × 28 pixels. MCDropoutGuide takes its weights, and predicts the pre-activations of every layer
with full covariance. Reported are, for each probability to drop and each layer,

- the geometric mean of σ/σ* over units and images, σ* being the deviation under drawn masks
  (Shekhovtsov et al. 2018, ε_σ), and the mean of |μ − μ*|/σ*;
- the largest relative error of mean and covariance given those of the layer before;
- for the first layer, means and variances of more masks: the root mean square of the errors in
  standard errors, which is one, and the largest of them.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import asdict, dataclass
from functools import partial

import hosts
import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

from pyro_moments import DeterministicELBO, MCDropoutGuide, Moments, predict, propagate

SIZES = [784, 300, 100, 10]
BLOCK = 10_000  # masks at a time


@dataclass(frozen=True)
class Result:
    """One layer under one probability to drop."""

    p: float
    layer: int
    deviation_ratio: float
    mean_error: float
    exactness: float
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
    parser.add_argument("--first", type=int, default=1_000_000, help="masks of the first layer")
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
    h = x
    for place, layer in enumerate(layers):
        w, b = (
            pyro.sample(f"{name}{place}", dist.Normal(0.0, 1.0).expand(v.shape).to_event(v.dim()))
            for name, v in (("weight", layer.weight), ("bias", layer.bias))
        )
        h = F.linear(torch.relu(h) if place else h, w, b)
        pyro.deterministic(f"layer{place}", h)


@torch.no_grad()
def measured(layers: list[nn.Linear], p: float, x: Tensor, options: argparse.Namespace) -> list:
    pyro.clear_param_store()
    guide, model = MCDropoutGuide(p=p), partial(network, layers)
    DeterministicELBO().loss(model, guide, x)  # makes the parameters
    for place, layer in enumerate(layers):
        for name in ("weight", "bias"):
            getattr(guide.locs, f"{name}{place}").copy_(getattr(layer, name))
    predicted = predict(model, guide, x)
    moments = [predicted[f"layer{place}"] for place in range(len(layers))]
    sampled = under_masks(layers, p, x, options.masks)
    results = []
    for place, (ours, (mean, variance)) in enumerate(zip(moments, sampled, strict=True)):
        deviation = variance.sqrt()
        ratio = (ours.variance.double().sqrt() / deviation).log().mean().exp()
        error = ((ours.mean.double() - mean).abs() / deviation).mean()
        exact = exactness(layers, place, moments, p, x)
        first = first_layer(layers[0], p, x, ours, options.first) if place == 0 else ()
        results.append(Result(p, place + 1, ratio.item(), error.item(), exact, *first))
    return results


def under_masks(
    layers: list[nn.Linear], p: float, x: Tensor, masks: int
) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of every pre-activation of each layer."""
    parts: list[list[Tensor]] = [[] for _ in layers]
    for start in range(0, masks, BLOCK):
        h = x.expand(min(BLOCK, masks - start), *x.shape)
        for place, layer in enumerate(layers):
            h = layer(F.dropout(torch.relu(h) if place else h, p))
            parts[place].append(h.double())
    return [(part.mean(0), part.var(0)) for part in map(torch.cat, parts)]


def exactness(layers: list[nn.Linear], place: int, moments: list, p: float, x: Tensor) -> float:
    """Largest error of mean and covariance against M (C + r diag(C_ii + μ_i²)) Mᵀ in doubles."""
    layer, ratio = layers[place], p / (1 - p)
    if place:
        mean, covariance = rectified(moments[place - 1])
    else:
        mean, covariance = x.double(), torch.zeros(*x.shape, x.shape[-1], dtype=torch.float64)
    matrix, ours = layer.weight.double(), moments[place]
    noise = ratio * (covariance.diagonal(dim1=-2, dim2=-1) + mean.square())
    expected = matrix @ (covariance + torch.diag_embed(noise)) @ matrix.T
    centre = mean @ matrix.T + layer.bias.double()
    errors = (ours.mean - centre).abs().max() / centre.abs().max()
    spread = (ours.covariance - expected).abs().max() / expected.abs().max()
    return max(errors.item(), spread.item())


def rectified(moments: object) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the relu of a Gaussian, in double precision."""
    double = Moments(moments.mean.double(), covariance=moments.covariance.double())
    result = propagate(torch.relu, double, covariance="full")
    return result.mean, result.covariance


def first_layer(
    layer: nn.Linear, p: float, x: Tensor, ours: object, masks: int
) -> tuple[float, float, float]:
    """Errors of means and variances in standard errors, from power sums about our mean."""
    errors = []
    for row, mean, variance in zip(x, ours.mean, ours.variance, strict=True):
        sums = [torch.zeros(mean.shape, dtype=torch.float64) for _ in range(4)]
        for start in range(0, masks, BLOCK):
            rows = row.expand(min(BLOCK, masks - start), -1)
            deviation = (layer(F.dropout(rows, p)) - mean).double()
            for order in range(4):
                sums[order] += (deviation ** (order + 1)).sum(0)
        one, two, _, four = (total / masks for total in sums)
        errors.append(one / (two / masks).sqrt())
        errors.append((two - variance.double()) / ((four - two**2) / masks).sqrt())
    z = torch.cat(errors).abs()
    return z.square().mean().sqrt().item(), z.max().item(), (z > 3).double().mean().item()


def report(results: list[Result]) -> None:
    print("| p | layer | σ/σ* | mean error | given the layer before | in standard errors |")
    print("|---|---|---|---|---|---|")
    for row in results:
        errors = ""
        if row.rms_standard_errors is not None:
            errors = f"rms {row.rms_standard_errors:.2f}, largest {row.largest_standard_error:.1f}"
            errors += f", beyond three {100 * row.share_beyond_three:.2f} %"
        ours = f"{row.deviation_ratio:.4f} | {row.mean_error:.4f} | {row.exactness:.1e}"
        print(f"| {row.p} | {row.layer} | {ours} | {errors} |")


if __name__ == "__main__":
    main()
