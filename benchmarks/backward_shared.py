"""Standard deviations of programs that use a weight more than once, against 10⁵ draws.

    python benchmarks/backward_shared.py [--host numpyro] [--check] [--out FILE]

Three hidden layers with one weight matrix, a recurrent cell over 20 steps, and a network at ten
positions whose mean is taken, with weights of standard deviation 0.02 and 0.1. What is shown is the
geometric mean, over the outputs, of the standard deviation by diagonal and by backward covariance
over the drawn one. Diagonal covariance takes the uses of a weight as independent.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import hosts
import numpy as np

ROWS, UNITS, OUTPUTS, STEPS, POSITIONS = 8, 20, 2, 20, 10
DRAWS, TOGETHER = 100_000, 500
DEVIATIONS, ALLOWED = (0.02, 0.1), (0.95, 1.05)
GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.normal(size=(STEPS, ROWS, UNITS))


def tied(host: ModuleType, function: Callable) -> Callable:
    """Hidden layers with one weight matrix and one bias."""

    def outputs(weights: list[Any], biases: list[Any], last: Any) -> Any:
        hidden = host.array(INPUTS[0])
        for layer in range(3):
            hidden = function(hidden @ of_use(weights, layer) + of_use(biases, layer))
        return hidden @ last

    return outputs


def recurrent(host: ModuleType, function: Callable) -> Callable:
    """A cell over 20 steps."""

    def outputs(weights: list[Any], biases: list[Any], last: Any) -> Any:
        state = function(host.array(0.5 * INPUTS[0]) + of_use(biases, 0))
        for step, inputs in enumerate(INPUTS[1:], 1):
            change = state @ of_use(weights, step) + of_use(biases, step)
            state = function(host.array(0.5 * inputs) + change)
        return state @ last

    return outputs


def pooled(host: ModuleType, function: Callable) -> Callable:
    """A network with one hidden layer at every position, and its mean over these."""

    def outputs(weights: list[Any], biases: list[Any], last: Any) -> Any:
        positions = host.array(INPUTS[:POSITIONS].swapaxes(0, 1))
        hidden = function(positions @ of_use(weights, 0) + of_use(biases, 0))
        return function(hidden @ of_use(weights, 1) + of_use(biases, 1)).mean(1) @ last

    return outputs


def of_use(parts: list[Any], number: int) -> Any:
    """The part for a use: the same for all uses, if there is one."""
    return parts[number % len(parts)]


CELL = "a cell over 20 steps"
CASES = (  # program, activation, and size of the weights: the state of the last cell grows
    ("three tied layers", tied, "tanh", 1.0),
    ("three tied layers", tied, "relu", 1.4),
    (CELL, recurrent, "tanh", 1.0),
    (CELL, recurrent, "relu", 0.7),
    (f"{CELL}, growing", recurrent, "relu", 1.4),
    ("ten positions, pooled", pooled, "tanh", 1.0),
    ("ten positions, pooled", pooled, "relu", 1.4),
)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    host = hosts.load(options.host, 1)
    with host.doubles():
        rows = [measured(host, *case, deviation) for case in CASES for deviation in DEVIATIONS]
    hosts.write(options.out, {"machine": hosts.described(options.host), "rows": rows})
    stable = (row for row in rows if "growing" not in row["program"])
    off = [row for row in stable if not ALLOWED[0] <= row["backward"] <= ALLOWED[1]]
    if options.check and off:
        sys.exit("; ".join(f"{row['program']}: {row['backward']:.3f}" for row in off))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    return hosts.parser(__doc__, "--host", "--check", "--out").parse_args(arguments)


def measured(
    host: ModuleType,
    name: str,
    program_of: Callable,
    activation: str,
    size: float,
    deviation: float,
) -> dict[str, Any]:
    program, means = program_of(host, host.activation(activation)), weights(size)
    drawn = by_draws(host, program, means, deviation)
    row: dict[str, Any] = {"program": name, "activation": activation, "deviation": deviation}
    for covariance in ("diagonal", "backward"):
        moments = [
            host.package.Moments(host.array(mean), variance=host.array(0 * mean + deviation**2))
            for mean in means
        ]
        # under diagonal covariance uses of one weight are refused: those of copies instead
        copies = STEPS if covariance == "diagonal" else 1
        *repeated, last = moments
        inputs = *([part] * copies for part in repeated), last
        found = host.package.propagate(program, *inputs, covariance=covariance).variance
        row[covariance] = float(np.exp(np.mean(np.log(np.asarray(found) / drawn)) / 2))
    parts = (f"{row[covariance]:.3f}" for covariance in ("diagonal", "backward"))
    print(f"{name:30s} {activation:5s} {deviation:5.2f}  {'  '.join(parts)}", flush=True)
    return row


def weights(size: float) -> list[np.ndarray]:
    """Means of the weight matrix, the bias, and the weights of the outputs."""
    generator = np.random.default_rng(1)
    matrix = size * generator.normal(size=(UNITS, UNITS)) / UNITS**0.5
    return [matrix, 0.1 * generator.normal(size=UNITS), generator.normal(size=(UNITS, OUTPUTS))]


def by_draws(
    host: ModuleType, program: Callable, means: list[np.ndarray], deviation: float
) -> np.ndarray:
    """Variances of the outputs."""
    generator, total, squares = np.random.default_rng(2), 0.0, 0.0
    run = host.over_draws(lambda weight, bias, last: program([weight], [bias], last))
    for _ in range(DRAWS // TOGETHER):
        noise = (generator.normal(size=(TOGETHER, *mean.shape)) for mean in means)
        drawn = [
            host.array(mean + deviation * part) for mean, part in zip(means, noise, strict=True)
        ]
        outputs = np.asarray(run(*drawn))
        total, squares = total + outputs.sum(0), squares + (outputs**2).sum(0)
    return squares / DRAWS - (total / DRAWS) ** 2


if __name__ == "__main__":
    main()
