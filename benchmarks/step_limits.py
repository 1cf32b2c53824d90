"""What no step of a diagonal ELBO can do without, measured beside it.

Of every layer whose inputs x are random with mean m and variance v, mean m W and variance
(m² + v) S + v W² are three matrix products forwards, and each has two gradients: nine in all, where
a plain network has three. The first layer has certain inputs, x W and x² S, which need no
gradients: four, where a plain network has two. For 784-400-400-10 these are 2.4 times the
multiplications of the plain network. Besides, locations and scales are read once, and two gradients
written. Nothing else is counted: no squares, no activation, no divergence, no likelihood, so that
the limit can be come near to, and not be reached.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from timing import Table

PRODUCTS, PASS = "its matrix products alone", "one pass over the weights alone"
LIMIT = "both"
LARGEST = 1.25  # ratio of a step to its limit


class Layer(NamedTuple):
    """Operands of a layer: (m, m² + v, v), (W, S, W²), and gradients by its means and variances.

    The first layer has two inputs and two weights.
    """

    inputs: Sequence[Any]
    weights: Sequence[Any]
    gradients: Sequence[Any]


def operands(sizes: Sequence[int], batch: int, normal: Callable[..., Any]) -> list[Layer]:
    """Operands of all layers.

    Args:
        sizes: numbers of units.
        batch: number of rows.
        normal: makes an array of a shape.
    """
    layers = []
    for place, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        count = 3 if place else 2
        inputs = [normal(batch, rows) for _ in range(count)]
        weights = [normal(rows, columns) for _ in range(count)]
        layers.append(Layer(inputs, weights, [normal(batch, columns) for _ in range(2)]))
    return layers


def products(layers: Sequence[Layer]) -> list[Any]:
    """All products of the layers, forwards and backwards.

    Args:
        layers: their operands.
    """
    found = []
    for inputs, weights, (by_mean, by_variance) in layers:
        gradients = by_mean, by_variance, by_variance
        for x, weight, gradient in zip(inputs, weights, gradients, strict=False):
            found += [x @ weight, x.T @ gradient]
            found += [gradient @ weight.T] if len(inputs) > 2 else []
    return found


def passed(layers: Sequence[Layer]) -> list[Any]:
    """Two arrays of the size of all weights, read and written once.

    Args:
        layers: their operands.
    """
    return [2.0 * part for layer in layers for part in layer.weights[:2]]


def to_limit(title: str, seconds: dict[str, float], step: str) -> Table:
    """A step as a ratio to its limit, both measured in one run.

    Args:
        title: of the measurement.
        seconds: by contender.
        step: the contender.
    """
    both = {LIMIT: seconds[PRODUCTS] + seconds[PASS], step: seconds[step]}
    return Table(f"limit, {title}", both, {step: LARGEST})
