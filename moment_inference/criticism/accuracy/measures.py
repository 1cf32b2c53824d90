"""Error measures of a layer's moments, from sums over draws in groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import to_numpy
from moment_inference.criticism.accuracy.layers import Layer

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
        points = to_numpy(draws, np.float64)
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
        """Return standard deviations, zero where draws vary by rounding only."""
        scale = _deviation(self.sums.sum(0), self.squares.sum(0), self.count)
        return np.where(scale > 8 * self.rounding * np.abs(self.mean), scale, 0.0)

    @property
    def covariance(self) -> np.ndarray | None:
        """Return the covariance [batch, d, d] of the compared batch elements."""
        if self.products is None:
            return None
        mean = self.layer.features((self.sums.sum(0) / self.count)[None])[0]
        centred = self.products / self.count - mean[:, :, None] * mean[:, None, :]
        return centred * (self.count / (self.count - 1))

    def half_deviations(self, start: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """Return deviations of every other group, and without each of these in turn."""
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
    """Return NumPy's floating dtype; float32 for bfloat16 and integers."""
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
    """Return nearly equal sizes of the fewest blocks up to ``most`` in ``count``."""
    number = -(-count // most)
    return [count // number + (index < count % number) for index in range(number)]


MAX_RELATIVE_ERROR = 0.15  # largest relative standard error of σ* by half of the draws
SIGNIFICANT_ERRORS = 4.0  # standard errors that a row may be off
MIN_RATIO = 1e-6  # ratios of standard deviations are clipped here, for their logarithm


class Estimate(NamedTuple):
    """A Monte Carlo estimate with its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        """Return value and error with the significant digits that the error leaves."""
        digits = 3
        if 0 < self.standard_error < math.inf:
            digits = min(max(1 - math.floor(math.log10(self.standard_error)), 1), 5)
        return f"{self.value:.{digits}f} ± {self.standard_error:.{digits}f}"


class Worst(NamedTuple):
    """The element of a layer with the largest error."""

    value: float
    standard_error: float
    place: tuple[int, ...]  # index of the element


@dataclass(frozen=True)
class ErrorMeasures:
    """Error measures of the moments of one layer: moments μ, σ; those of draws μ*, σ*.

    Source: Shekhovtsov et al. 2018, section 4.
    """

    mean_error: Estimate  # ε_μ = mean |μ − μ*| / mean σ*
    noise: float  # expected ε_μ of exact moments: √(2 / πn)
    # ε_σ: geometric mean of σ / σ* over the counted elements, those whose σ* half of the
    # draws give to 15 %; one if none counts.
    deviation_ratio: Estimate
    share: float  # share of the counted elements
    worst_mean: Worst  # largest (μ − μ*) / σ* of counted elements
    worst_deviation: Worst  # σ / σ* farthest from one of counted elements
    correlation_error: float | None  # RMS of R − R* off the diagonal

    @property
    def departure(self) -> float:
        """Return the larger error without noise, of ε_μ and |log ε_σ|."""
        return max(self.mean_error.value - self.noise, abs(math.log(self.deviation_ratio.value)))

    @property
    def is_beyond_noise(self) -> bool:
        """Return whether ε_μ or ε_σ is over four standard errors from the exact one."""
        mean, ratio = self.mean_error, self.deviation_ratio
        in_log = ratio.standard_error / ratio.value
        off = mean.value - self.noise > SIGNIFICANT_ERRORS * max(
            mean.standard_error, 0.2 * self.noise
        )
        return off or abs(math.log(ratio.value)) > max(SIGNIFICANT_ERRORS * in_log, 1e-6)


def error_measures(
    layer: Layer, sums: LayerSums, errors: tuple[np.ndarray, np.ndarray]
) -> ErrorMeasures:
    """Return error measures; errors are of sampled means and deviations."""
    mean, deviation = sums.mean, sums.deviation
    off = _ratio(np.abs(layer.mean - mean), deviation, layer.deviation)
    offs = [
        _ratio(np.abs(layer.mean - m), d, layer.deviation) for m, d in sums.leave_one_group_out()
    ]
    ratio, counted = _deviation_ratio(layer.deviation, sums)
    units = np.where(counted, deviation, 1.0)
    ratios = np.where(counted, np.maximum(layer.deviation / units, MIN_RATIO), 1.0)
    return ErrorMeasures(
        Estimate(off, _jackknife(offs)),
        math.sqrt(2 / (math.pi * sums.count)),
        ratio,
        float(np.mean(counted)),
        _worst(np.where(counted, layer.mean - mean, 0.0) / units, errors[0] / units, np.abs),
        _worst(ratios, ratios * errors[1] / units, lambda part: np.abs(np.log(part))),
        _correlation_error(layer, sums),
    )


def _deviation_ratio(propagated: np.ndarray, sums: LayerSums) -> tuple[Estimate, np.ndarray]:
    """Return the geometric mean of σ / σ*, and which elements it includes.

    A few draws decide σ* of units that rarely fire, so such elements are excluded. Each
    half of the draws selects elements for the other half: no element is selected by its
    own chance error.
    """
    halves = [sums.half_deviations(start) for start in (0, 1)]
    limit = max(MAX_RELATIVE_ERROR, 2 / math.sqrt(sums.count))
    reliable = [_is_reliable(*half, limit) & (sums.deviation > 0) for half in halves]
    parts = [
        _mean_log(propagated, *half, c) for half, c in zip(halves, reliable[::-1], strict=True)
    ]
    ratio = math.exp(sum(log for log, _ in parts) / 2)
    return Estimate(ratio, ratio * math.hypot(*(e for _, e in parts)) / 2), np.all(reliable, axis=0)


def _is_reliable(deviation: np.ndarray, rest: list[np.ndarray], limit: float) -> np.ndarray:
    """Return where the relative standard error of a deviation is below the limit."""
    error = np.std(rest, axis=0) * math.sqrt(len(rest) - 1)
    return error < limit * deviation


def _mean_log(
    propagated: np.ndarray, deviation: np.ndarray, rest: list[np.ndarray], counted: np.ndarray
) -> tuple[float, float]:
    """Return the mean of log σ / σ*, without bias, and its standard error."""
    counted = counted & np.all([part > 0 for part in rest], axis=0)
    if not counted.any():
        return 0.0, 0.0
    log, *logs = (
        float(np.mean(np.log(np.maximum(propagated[counted] / part[counted], MIN_RATIO))))
        for part in (deviation, *rest)
    )
    return len(logs) * log - (len(logs) - 1) * float(np.mean(logs)), _jackknife(logs)


def _ratio(difference: np.ndarray, deviation: np.ndarray, propagated: np.ndarray) -> float:
    """Return the mean difference over the mean sampled deviation, else the known one."""
    unit = float(np.mean(deviation)) or float(np.mean(propagated))
    return float(np.mean(difference)) / unit if unit > 0 else 0.0


def _jackknife(values: list[float]) -> float:
    """Return the standard error from values that each leave one group out."""
    return float(np.std(values)) * math.sqrt(len(values) - 1)


def _worst(values: np.ndarray, errors: np.ndarray, size: Callable) -> Worst:
    index = np.unravel_index(int(np.argmax(size(values))), values.shape)
    return Worst(float(values[index]), float(errors[index]), tuple(map(int, index)))


def _correlation_error(layer: Layer, sums: LayerSums) -> float | None:
    if layer.covariance is None or sums.covariance is None:
        return None
    propagated, sampled = _correlation(layer.covariance), _correlation(sums.covariance)
    off_diagonal = np.broadcast_to(~np.eye(propagated.shape[-1], dtype=bool), propagated.shape)
    both = off_diagonal & np.isfinite(propagated) & np.isfinite(sampled)
    return float(np.sqrt(np.mean((propagated - sampled)[both] ** 2))) if both.any() else 0.0


def _correlation(covariance: np.ndarray) -> np.ndarray:
    """Return the correlations of a covariance, NaN where a standard deviation is zero."""
    deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    units = deviation[..., :, None] * deviation[..., None, :]
    return np.where(units > 0, covariance / np.where(units > 0, units, 1.0), np.nan)
