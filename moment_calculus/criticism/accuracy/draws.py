"""Accumulate sums over draws of each layer, in groups whose jackknife gives standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moment_calculus.criticism.accuracy.layers import Layer, to_numpy

GROUPS = 20
BLOCK = 2**23  # elements of all layers and latent sites in memory at once

Draw = Callable[[int], Sequence[Any]]  # from a number of draws to one [draws, ...] per layer


@dataclass(eq=False)
class LayerSums:
    """Sums of powers of the draws of one layer.

    The first draw is subtracted from all, so that values that do not vary have variance
    zero.
    """

    layer: Layer
    counts: np.ndarray  # number of draws in each group
    origin: Any = None  # the first draw
    sums: np.ndarray = field(init=False)  # sums, [groups, ...]
    squares: np.ndarray = field(init=False)  # sums of squares, [groups, ...]
    products: np.ndarray | None = field(init=False)  # sums of products, [batch, d, d]
    rounding: float = 0.0  # machine epsilon of the draws

    def __post_init__(self) -> None:
        """Start all sums at zero."""
        shape = (len(self.counts), *self.layer.shape)
        self.sums, self.squares = np.zeros(shape), np.zeros(shape)
        size, compared_count = self.layer.size, self.layer.compared_count
        self.products = np.zeros((compared_count, size, size)) if compared_count else None

    def add(self, group: int, draws: Any) -> None:
        """Add draws [draws, ...] to the sums of a group."""
        points = to_numpy(draws)
        if self.origin is None:
            self.origin = points[0]
            self.rounding = float(np.finfo(to_dtype(draws)).eps)
        with np.errstate(invalid="ignore"):  # infinite draws make NaN
            points = points - self.origin
        self.sums[group] += points.sum(0)
        self.squares[group] += (points * points).sum(0)
        if self.products is not None:
            rows = np.moveaxis(self.layer.features(points), 0, -1)
            self.products += rows @ np.moveaxis(rows, -2, -1)

    @property
    def is_finite(self) -> bool:
        """Return whether all sums are finite."""
        return bool(np.isfinite(self.squares).all())

    @property
    def count(self) -> int:
        """Return the number of draws."""
        return int(self.counts.sum())

    @property
    def mean(self) -> np.ndarray:
        """Return the mean of all draws."""
        return self.origin + self.sums.sum(0) / self.count

    @property
    def deviation(self) -> np.ndarray:
        """Return standard deviations of all draws, zero where they vary by rounding only."""
        scale = _deviation(self.sums.sum(0), self.squares.sum(0), self.count)
        return np.where(scale > 8 * self.rounding * np.abs(self.mean), scale, 0.0)

    @property
    def covariance(self) -> np.ndarray | None:
        """Return the covariance [batch, d, d] of the features of the compared batch elements."""
        if self.products is None:
            return None
        mean = self.layer.features((self.sums.sum(0) / self.count)[None])[0]
        centred = self.products / self.count - mean[:, :, None] * mean[:, None, :]
        return centred * (self.count / (self.count - 1))

    def half_deviations(self, start: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return standard deviations of every other group, and without each of these in turn."""
        chosen = slice(start, None, 2)  # start: 0 for the even groups, 1 for the odd ones
        counts, firsts, seconds = self.counts[chosen], self.sums[chosen], self.squares[chosen]
        count, first, second = counts.sum(), firsts.sum(0), seconds.sum(0)
        every = zip(counts, firsts, seconds, strict=True)
        rest = [_deviation(first - one, second - two, count - size) for size, one, two in every]
        return _deviation(first, second, count), rest

    def leave_one_group_out(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield mean and standard deviation without each of the groups in turn."""
        first, second = self.sums.sum(0), self.squares.sum(0)
        for group, size in enumerate(self.counts):
            rest, count = first - self.sums[group], self.count - size
            yield (
                self.origin + rest / count,
                _deviation(rest, second - self.squares[group], count),
            )


def _deviation(first: np.ndarray, second: np.ndarray, count: Any) -> np.ndarray:
    mean = first / count
    return np.sqrt(np.maximum(second / count - mean * mean, 0.0) * (count / (count - 1)))


def to_dtype(array: Any) -> Any:
    """Return the floating dtype of an array by NumPy's name; float32 for bfloat16 and integers."""
    name = str(array.dtype).removeprefix("torch.")
    return np.dtype(name) if name in ("float16", "float32", "float64") else np.dtype("float32")


def accumulate(
    layers: Sequence[Layer], latent: int, draw: Draw, num_samples: int
) -> list[LayerSums]:
    """Draw a program in blocks of bounded memory; return the sums of each layer."""
    counts = np.array([len(part) for part in np.array_split(np.arange(num_samples), GROUPS)])
    layer_sums = [LayerSums(layer, counts) for layer in layers]
    size = latent + sum(math.prod(layer.shape) for layer in layers)
    most = max(1, BLOCK // max(1, size))
    for group, count in enumerate(counts):
        for size in _blocks(int(count), most):
            for sums, draws in zip(layer_sums, draw(size), strict=True):
                sums.add(group, draws)
    return layer_sums


def _blocks(count: int, most: int) -> list[int]:
    """Return sizes, as equal as possible, of the fewest blocks up to ``most`` in ``count``."""
    number = -(-count // most)
    return [count // number + (place < count % number) for place in range(number)]
