"""Standard deviations of networks by width and depth, by three covariances, against 10⁵ draws.

    python benchmarks/backward_widths.py [--host numpyro] [--out FILE]

Networks 13-d-…-d-2 with He's random weights as means, and a standard deviation of each weight that
is 0.3 of the spread of the means. What is shown is the geometric mean, over both outputs and four
inputs, of the standard deviation by each covariance over the drawn one.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import hosts
import numpy as np

WIDTHS, DEPTHS, ROWS, SHARE = (50, 200, 800), (2, 3, 4, 6), 4, 0.3
DRAWS, TOGETHER = 100_000, 10_000
COVARIANCES = ("diagonal", "backward", "full")


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load(options.host, 1)
    rows = [
        measured(host, width, depth, activation)
        for width, depth, activation in itertools.product(WIDTHS, DEPTHS, ("relu", "tanh"))
    ]
    hosts.write(options.out, {"machine": hosts.described(options.host), "rows": rows})


def parse(arguments: list[str] | None) -> argparse.Namespace:
    return hosts.parser(__doc__, "--host", "--out").parse_args(arguments)


def measured(host: ModuleType, width: int, depth: int, activation: str) -> dict[str, Any]:
    sizes, generator = (13, *[width] * depth, 2), np.random.default_rng(0)
    inputs = generator.normal(size=(ROWS, 13)).astype(np.float32)
    layers = [of_layer(generator, shape, activation) for shape in itertools.pairwise(sizes)]
    drawn = by_draws(inputs, layers, activation)
    program = network(host, inputs, host.activation(activation))
    row: dict[str, Any] = {"width": width, "depth": depth, "activation": activation}
    moments = [
        host.package.Moments(host.array(mean), variance=host.array(0 * mean + scale**2))
        for mean, scale in layers
    ]
    for covariance in COVARIANCES:
        found = host.package.propagate(program, moments, covariance=covariance).variance
        row[covariance] = float(np.exp(np.mean(np.log(np.asarray(found) / drawn)) / 2))
    print(row, flush=True)
    return row


def of_layer(
    generator: np.random.Generator, shape: tuple[int, int], activation: str
) -> tuple[np.ndarray, np.float32]:
    """Means of the weights, and their common standard deviation."""
    spread = ((2.0 if activation == "relu" else 1.0) / shape[0]) ** 0.5
    mean = spread * generator.normal(size=shape)
    return mean.astype(np.float32), np.float32(SHARE * spread)


def network(host: ModuleType, inputs: np.ndarray, function: Callable) -> Callable:
    def outputs(weights: list[Any]) -> Any:
        first, *others = weights
        value = host.array(inputs) @ first
        for weight in others:
            value = function(value) @ weight
        return value

    return outputs


def by_draws(inputs: np.ndarray, layers: list, activation: str) -> np.ndarray:
    """Variances of the outputs; of one input the units of a layer are independent, given the last.

    This draws the units, of Gaussians whose moments the units before give, in place of the weights.
    """
    function = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[activation]
    generator, variances = np.random.default_rng(1), []
    for row in inputs:
        parts = [one_row(row, layers, function, generator) for _ in range(DRAWS // TOGETHER)]
        variances.append(np.concatenate(parts).astype(np.float64).var(axis=0))
    return np.array(variances)


def one_row(
    row: np.ndarray, layers: list, function: Callable, generator: np.random.Generator
) -> np.ndarray:
    value = np.broadcast_to(row, (TOGETHER, len(row)))
    for place, (mean, scale) in enumerate(layers):
        value = function(value) if place else value
        noise = generator.standard_normal((TOGETHER, mean.shape[1]), dtype=np.float32)
        size = np.sqrt(np.sum(value * value, axis=1, keepdims=True))
        value = value @ mean + scale * size * noise
    return value


if __name__ == "__main__":
    main()
