"""Moments of trained convolutional networks, layer by layer, against those of draws.

    python benchmarks/convolutional_accuracy.py --data DIR --cache DIR [--host numpyro] [--out FILE]

LeNet and the CIFAR net of Shekhovtsov et al. (2018, D.4), trained as plain networks, with noisy
images (the variances are those of standardised pixels) or with independent Gaussian weights and
biases. `propagate` gives the moments by diagonal and by backward covariance, in double precision.
Reported are the paper's measures at the logits, and for some units of every layer: "sd" is the
geometric mean of σ/σ*, and "mean" the mean of |μ − μ*| over the mean of σ*, where μ* and σ* are of
draws. Exact moments have a "mean" of √(2/πn) for n passes with draws, 0.013 for 4000.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import convolutional_nets as nets
import hosts
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

NOISE, WEIGHTS = "noisy images", "random weights"
CASES = {
    "lenet": [(NOISE, 1e-4), (NOISE, 0.01), (NOISE, 0.1), (WEIGHTS, 0.005**2), (WEIGHTS, 0.02**2)],
    "cifar": [(NOISE, 0.01)],
}
EPOCHS, LEAST = {"lenet": 2, "cifar": 10}, {"lenet": 0.97, "cifar": 0.7}
UNITS, TOGETHER = {"lenet": 64, "cifar": 32}, {"lenet": 50, "cifar": 10}  # compared, passes
COVARIANCES = "diagonal", "backward"
LIMITS = {("lenet", 0.1): (0.9, 1.1, 0.1), ("cifar", 0.01): (0.8, 1.2, np.inf)}  # sd, sd, mean
USUAL = 0.95, 1.05, 0.1


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load(options.host, options.threads)
    rows = []
    for name in options.nets:
        net, images = prepared(name, options)
        shared = {"net": name, "test_accuracy": nets.accuracy(net, images)}
        for kind, variance in CASES[name]:
            x = images.x_test[: options.images]
            row = {"kind": kind, "variance": variance, "passes": options.passes}
            row["layers"] = measured(host, name, net, x, row)
            rows.append(shared | row)
            print(name, kind, variance, row["layers"][-1], flush=True)
            hosts.write(options.out, {"machine": hosts.described(options.host), "rows": rows})
    if options.check and any(map(off, rows)):
        sys.exit("; ".join(off(row) for row in rows if off(row)))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = hosts.parser(__doc__, "--host", "--check", "--out")
    parser.add_argument("--data", type=Path, required=True, help="folder with images/")
    parser.add_argument("--cache", type=Path, required=True, help="folder of trained weights")
    parser.add_argument("--nets", nargs="*", choices=list(CASES), default=list(CASES))
    parser.add_argument("--images", type=int, default=8, help="of the test set (%(default)s)")
    parser.add_argument("--passes", type=int, default=4000, help="with draws (%(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args(arguments)


def prepared(name: str, options: argparse.Namespace) -> tuple[nn.Sequential, nets.Images]:
    """Load a trained network; it is trained if there is no file of it."""
    images, file = nets.load(options.data, name), options.cache / f"{name}.pt"
    if not file.is_file():
        torch.save(nets.trained(name, images, EPOCHS[name]).state_dict(), file)
    return nets.stored(name, file), images


def measured(
    host: Any, name: str, net: nn.Sequential, x: Tensor, row: dict[str, Any]
) -> list[dict[str, Any]]:
    """Measure every layer of a network."""
    weights = [part.detach() for part in net.state_dict().values()]
    units = dict(some_units(name, weights, x))
    layers: list[dict[str, Any]] = [{"layer": layer} for layer in units]
    drawn = by_draws(program(name, units), weights, x, row, TOGETHER[name])
    for covariance in COVARIANCES:
        with host.doubles():
            stated = propagated(host, name, units, weights, x, row, covariance)
        for layer, (mean, sd), (true, spread) in zip(layers, stated, drawn, strict=True):
            ratio, error = np.exp(np.log(sd / spread).mean()), np.abs(mean - true).mean()
            layer[covariance] = {"sd": float(ratio), "mean": float(error / spread.mean())}
    return layers


def layers_of(
    name: str, weights: list[Any], x: Any, convolve: Callable, leaky_relu: Callable
) -> Iterator[tuple[str, Any]]:
    """Evaluate a network: every layer's name and units, with functions of a host."""
    strides = [stride for *_, stride in nets.NETS[name][1]]
    for place, stride in enumerate(strides, 1):
        x = convolve(x, *weights[2 * place - 2 : 2 * place], stride)
        yield f"convolution {place}", x
        if place < len(strides):
            x = leaky_relu(x, nets.SLOPE)
            yield f"activation {place}", x
    if name == "cifar":
        yield "mean over positions", x.mean((2, 3))


def some_units(name: str, weights: list[Tensor], x: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Choose units of every layer; of the logits all are chosen."""
    generator = torch.Generator().manual_seed(0)
    for layer, units in layers_of(name, weights, x, F.conv2d, F.leaky_relu):
        yield layer, torch.randperm(units[0].numel(), generator=generator)[: UNITS[name]]


def program(
    name: str, units: dict[str, Any], convolve: Callable = F.conv2d, leaky: Any = F.leaky_relu
) -> Callable:
    """Return a function of weights and images that gives the chosen units of every layer."""

    def run(weights: list[Any], x: Any) -> list[Any]:
        layers = layers_of(name, weights, x, convolve, leaky)
        return [value.reshape(x.shape[0], -1)[:, units[layer]] for layer, value in layers]

    return run


def by_draws(
    run: Callable, weights: list[Tensor], x: Tensor, row: dict[str, Any], together: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return means and standard deviations of units under draws."""
    generator, scale = torch.Generator().manual_seed(0), row["variance"] ** 0.5
    sums: list[Any] = []
    centre = run(weights, x)
    for _ in range(row["passes"] // together):

        def noisy(part: Tensor) -> Tensor:
            return part + scale * torch.randn(together, *part.shape, generator=generator).to(part)

        if row["kind"] == NOISE:
            drawn = run(weights, noisy(x).flatten(0, 1))
        else:
            drawn = torch.vmap(lambda *parts: run(list(parts), x))(*map(noisy, weights))
        moved = [
            v.reshape(together, *c.shape).double() - c for v, c in zip(drawn, centre, strict=True)
        ]
        parts = [torch.stack([v.sum(0), (v**2).sum(0)]) for v in moved]
        sums = [a + b for a, b in zip(sums, parts, strict=True)] if sums else parts
    moments = [(c, *(total / row["passes"])) for c, total in zip(centre, sums, strict=True)]
    return [
        ((c + first).numpy(), (second - first**2).sqrt().numpy()) for c, first, second in moments
    ]


def propagated(
    host: Any, name: str, units: dict, weights: list, x: Tensor, row: dict, covariance: str
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return means and standard deviations of units in closed form."""
    functions = {} if host.NAME == "Pyro" else jax_functions()
    run = program(name, {key: host.array(part) for key, part in units.items()}, **functions)
    random = [x] if row["kind"] == NOISE else weights
    arrays = [host.array(part.double().numpy()) for part in random]
    certain = [host.array(part.double().numpy()) for part in (weights if random[0] is x else [x])]
    moments = [host.package.Moments(a, variance=0 * a + row["variance"]) for a in arrays]

    def of_random(*random: Any) -> list[Any]:
        return run(certain, *random) if row["kind"] == NOISE else run(list(random), *certain)

    found = host.package.propagate(of_random, *moments, covariance=covariance)
    return [(np.asarray(part.mean), np.asarray(part.variance) ** 0.5) for part in found]


def jax_functions() -> dict[str, Callable]:
    """Return JAX's functions in the place of torch's."""
    import jax

    def convolve(x: Any, weight: Any, bias: Any, stride: int) -> Any:
        strides = (stride, stride)
        return jax.lax.conv_general_dilated(x, weight, strides, "VALID") + bias[:, None, None]

    return {"convolve": convolve, "leaky": jax.nn.leaky_relu}


def off(row: dict[str, Any]) -> str:
    """Say where the logits by backward covariance miss what is asked of them."""
    low, high, most = LIMITS.get((row["net"], row["variance"]), USUAL)
    found, name = row["layers"][-1]["backward"], f"{row['net']}, {row['kind']} {row['variance']}"
    trained = row["test_accuracy"] >= LEAST[row["net"]]
    kept = low <= found["sd"] <= high and found["mean"] <= most and trained
    return "" if kept else f"{name}: {found}, test accuracy {row['test_accuracy']:.4f}"


if __name__ == "__main__":
    main()
