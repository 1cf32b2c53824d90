"""Sums over draws of the layers of a program, in groups from which standard errors come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy.layers import Layer, to_numpy

GROUPS = 20
BLOCK = 2**23  # elements of all layers and latent sites that are drawn at once

Draw = Callable[[int], Sequence[Any]]


@dataclass(eq=False)
class Totals:
    """Sums of powers of the draws of one layer.

    Draws are taken from the first one on, so that what no draw moves has variance zero.

    Args:
        layer: the layer.
        counts: of draws, by group.
    """

    layer: Layer
    counts: np.ndarray
    origin: Any = None
    first: np.ndarray = field(init=False)
    second: np.ndarray = field(init=False)
    products: np.ndarray | None = field(init=False)
    rounding: float = 0.0

    def __post_init__(self) -> None:
        """Begin with zeros."""
        shape = (len(self.counts), *self.layer.shape)
        self.first, self.second = np.zeros(shape), np.zeros(shape)
        size, compared = self.layer.size, self.layer.compared
        self.products = np.zeros((compared, size, size)) if compared else None

    def add(self, group: int, draws: Any) -> None:
        """Add draws to a group.

        Args:
            group: its number.
            draws: [draws, ...].
        """
        points = to_numpy(draws)
        if self.origin is None:
            self.origin = points[0]
            self.rounding = float(np.finfo(to_dtype(draws)).eps)
        with np.errstate(invalid="ignore"):  # of infinite draws
            points = points - self.origin
        self.first[group] += points.sum(0)
        self.second[group] += (points * points).sum(0)
        if self.products is not None:
            rows = np.moveaxis(self.layer.features(points), 0, -1)
            self.products += rows @ np.moveaxis(rows, -2, -1)

    @property
    def is_finite(self) -> bool:
        """Whether all sums are finite."""
        return bool(np.isfinite(self.second).all())

    @property
    def count(self) -> int:
        """Number of draws."""
        return int(self.counts.sum())

    @property
    def mean(self) -> np.ndarray:
        """Of all draws."""
        return self.origin + self.first.sum(0) / self.count

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviations of all draws, zero where only rounding moves them."""
        found = _deviation(self.first.sum(0), self.second.sum(0), self.count)
        return np.where(found > 8 * self.rounding * np.abs(self.mean), found, 0.0)

    @property
    def covariance(self) -> np.ndarray | None:
        """Of the features, [batch, d, d], of the elements of the batch that are compared."""
        if self.products is None:
            return None
        mean = self.layer.features((self.first.sum(0) / self.count)[None])[0]
        centred = self.products / self.count - mean[:, :, None] * mean[:, None, :]
        return centred * (self.count / (self.count - 1))

    def deviations(self, start: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Standard deviations of every other group, and without each of these in turn.

        Args:
            start: the first of the groups, zero or one.
        """
        chosen = slice(start, None, 2)
        counts, firsts, seconds = self.counts[chosen], self.first[chosen], self.second[chosen]
        count, first, second = counts.sum(), firsts.sum(0), seconds.sum(0)
        every = zip(counts, firsts, seconds, strict=True)
        rest = [_deviation(first - one, second - two, count - size) for size, one, two in every]
        return _deviation(first, second, count), rest

    def without(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Mean and standard deviation without each of the groups in turn."""
        first, second = self.first.sum(0), self.second.sum(0)
        for group, size in enumerate(self.counts):
            rest, count = first - self.first[group], self.count - size
            yield (
                self.origin + rest / count,
                _deviation(rest, second - self.second[group], count),
            )


def _deviation(first: np.ndarray, second: np.ndarray, count: Any) -> np.ndarray:
    mean = first / count
    return np.sqrt(np.maximum(second / count - mean * mean, 0.0) * (count / (count - 1)))


def to_dtype(array: Any) -> Any:
    """The floating-point type of an array, by NumPy's name for it.

    Args:
        array: of NumPy, torch or JAX.
    """
    name = str(array.dtype).removeprefix("torch.")
    return np.dtype(name) if name in ("float16", "float32", "float64") else np.dtype("float32")


def drawn_totals(
    layers: Sequence[Layer], latent: int, draw: Draw, num_samples: int
) -> list[Totals]:
    """Draw a program, in blocks of bounded memory.

    Args:
        layers: of the program.
        latent: number of elements of the latent sites.
        draw: from a number of draws to arrays [draws, ...], one for each layer.
        num_samples: how many draws.

    Returns:
        Sums, one for each layer.
    """
    counts = np.array([len(part) for part in np.array_split(np.arange(num_samples), GROUPS)])
    found = [Totals(layer, counts) for layer in layers]
    size = latent + sum(math.prod(layer.shape) for layer in layers)
    most = max(1, BLOCK // max(1, size))
    for group, count in enumerate(counts):
        for size in _blocks(int(count), most):
            for totals, draws in zip(found, draw(size), strict=True):
                totals.add(group, draws)
    return found


def _blocks(count: int, most: int) -> list[int]:
    """Sizes of as equal blocks as can be."""
    number = -(-count // most)
    return [count // number + (place < count % number) for place in range(number)]
