"""The error measures of moments, with the standard errors that they have from draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_calculus.criticism.accuracy.draws import Totals
from moment_calculus.criticism.accuracy.layers import Layer

RELIABLE = 0.15  # relative standard error of a sampled standard deviation, in half of the draws
BEYOND = 4.0  # standard errors
LEAST = 1e-6  # ratio of standard deviations


class Estimate(NamedTuple):
    """A number from draws.

    Args:
        value: the number.
        standard_error: its Monte Carlo standard error.
    """

    value: float
    standard_error: float

    def __str__(self) -> str:
        """Both, to the digits that the error leaves."""
        digits = 3
        if 0 < self.standard_error < math.inf:
            digits = min(max(1 - math.floor(math.log10(self.standard_error)), 1), 5)
        return f"{self.value:.{digits}f} ± {self.standard_error:.{digits}f}"


class Worst(NamedTuple):
    """The element of a layer that is farthest off.

    Args:
        value: its error.
        standard_error: of the value.
        place: where it is.
    """

    value: float
    standard_error: float
    place: tuple[int, ...]


@dataclass(frozen=True)
class Measures:
    """How far the moments of one layer are from those of draws.

    Args:
        mean_error: ε_μ = mean |μ − μ*| / mean σ*.
        noise: what ε_μ is expected to be where the moments are exact: √(2 / πn).
        deviation_ratio: ε_σ, the geometric mean of σ / σ* over the elements that count: those
            whose σ* is known to 15 % by half of the draws. One without any is one.
        share: of the elements that count.
        worst_mean: the largest (μ − μ*) / σ* of these elements.
        worst_deviation: the σ / σ* of these elements that is farthest from one.
        correlation_error: root mean square of R − R* off the diagonal; None where no covariance
            is carried.

    Source: Shekhovtsov et al. 2018, section 4.
    """

    mean_error: Estimate
    noise: float
    deviation_ratio: Estimate
    share: float
    worst_mean: Worst
    worst_deviation: Worst
    correlation_error: float | None

    @property
    def departure(self) -> float:
        """How far off, without noise: of the mean in standard deviations, or log ε_σ."""
        return max(self.mean_error.value - self.noise, abs(math.log(self.deviation_ratio.value)))

    @property
    def is_beyond_noise(self) -> bool:
        """Whether either measure is four standard errors from what exact moments have."""
        mean, ratio = self.mean_error, self.deviation_ratio
        in_log = ratio.standard_error / ratio.value
        off = mean.value - self.noise > BEYOND * max(mean.standard_error, 0.2 * self.noise)
        return off or abs(math.log(ratio.value)) > max(BEYOND * in_log, 1e-6)


def measured(layer: Layer, totals: Totals, errors: tuple[np.ndarray, np.ndarray]) -> Measures:
    """The measures of a layer.

    Args:
        layer: its moments.
        totals: sums of its draws.
        errors: standard errors of the sampled means and standard deviations.
    """
    mean, deviation = totals.mean, totals.deviation
    off = _ratio(np.abs(layer.mean - mean), deviation, layer.deviation)
    offs = [_ratio(np.abs(layer.mean - m), d, layer.deviation) for m, d in totals.without()]
    ratio, counted = _deviation_ratio(layer.deviation, totals)
    units = np.where(counted, deviation, 1.0)
    ratios = np.where(counted, np.maximum(layer.deviation / units, LEAST), 1.0)
    return Measures(
        Estimate(off, _jackknife(offs)),
        math.sqrt(2 / (math.pi * totals.count)),
        ratio,
        float(np.mean(counted)),
        _worst(np.where(counted, layer.mean - mean, 0.0) / units, errors[0] / units, np.abs),
        _worst(ratios, ratios * errors[1] / units, lambda part: np.abs(np.log(part))),
        _correlation_error(layer, totals),
    )


def _deviation_ratio(known: np.ndarray, totals: Totals) -> tuple[Estimate, np.ndarray]:
    """The geometric mean of σ / σ*, and which elements are in it.

    Of units that hardly ever fire a few draws decide the sampled deviation. Which elements count is
    found by one half of the draws for the other, so that no element is chosen by its own luck.
    """
    halves = [totals.deviations(start) for start in (0, 1)]
    limit = max(RELIABLE, 2 / math.sqrt(totals.count))
    reliable = [_is_reliable(*half, limit) & (totals.deviation > 0) for half in halves]
    parts = [_mean_log(known, *half, c) for half, c in zip(halves, reliable[::-1], strict=True)]
    ratio = math.exp(sum(log for log, _ in parts) / 2)
    return Estimate(ratio, ratio * math.hypot(*(e for _, e in parts)) / 2), np.all(reliable, axis=0)


def _is_reliable(deviation: np.ndarray, rest: list[np.ndarray], limit: float) -> np.ndarray:
    """Whether the sampled deviation of an element is known to a relative standard error."""
    error = np.std(rest, axis=0) * math.sqrt(len(rest) - 1)
    return error < limit * deviation


def _mean_log(
    known: np.ndarray, deviation: np.ndarray, rest: list[np.ndarray], counted: np.ndarray
) -> tuple[float, float]:
    """Mean of log σ / σ* without the bias of the logarithm, and its standard error."""
    counted = counted & np.all([part > 0 for part in rest], axis=0)
    if not counted.any():
        return 0.0, 0.0
    log, *logs = (
        float(np.mean(np.log(np.maximum(known[counted] / part[counted], LEAST))))
        for part in (deviation, *rest)
    )
    return len(logs) * log - (len(logs) - 1) * float(np.mean(logs)), _jackknife(logs)


def _ratio(difference: np.ndarray, deviation: np.ndarray, known: np.ndarray) -> float:
    """Means in units of the mean standard deviation: the sampled one, else the known one."""
    unit = float(np.mean(deviation)) or float(np.mean(known))
    return float(np.mean(difference)) / unit if unit > 0 else 0.0


def _jackknife(values: list[float]) -> float:
    """Standard error from values that each leave one group out."""
    return float(np.std(values)) * math.sqrt(len(values) - 1)


def _worst(found: np.ndarray, errors: np.ndarray, size: Callable) -> Worst:
    index = np.unravel_index(int(np.argmax(size(found))), found.shape)
    return Worst(float(found[index]), float(errors[index]), tuple(map(int, index)))


def _correlation_error(layer: Layer, totals: Totals) -> float | None:
    if layer.covariance is None or totals.covariance is None:
        return None
    known, sampled = _correlation(layer.covariance), _correlation(totals.covariance)
    apart = np.broadcast_to(~np.eye(known.shape[-1], dtype=bool), known.shape)
    both = apart & np.isfinite(known) & np.isfinite(sampled)
    return float(np.sqrt(np.mean((known - sampled)[both] ** 2))) if both.any() else 0.0


def _correlation(covariance: np.ndarray) -> np.ndarray:
    """NaN where a standard deviation is zero."""
    deviation = np.sqrt(np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0))
    units = deviation[..., :, None] * deviation[..., None, :]
    return np.where(units > 0, covariance / np.where(units > 0, units, 1.0), np.nan)
