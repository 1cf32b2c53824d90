"""The error measures of moments, with the standard errors that they have from draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_calculus.criticism.accuracy.draws import Totals
from moment_calculus.criticism.accuracy.layers import Layer

SMALL = 0.1  # of the root mean square of a layer's standard deviations
BEYOND = 4.0  # standard errors


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
        deviation_ratio: ε_σ, the geometric mean of σ / σ*, over elements that are not small.
        worst_mean: the largest (μ − μ*) / σ* of these elements.
        worst_deviation: the σ / σ* of these elements that is farthest from one.
        correlation_error: root mean square of R − R* off the diagonal; None where no covariance
            is carried.

    Source: Shekhovtsov et al. 2018, section 4.
    """

    mean_error: Estimate
    noise: float
    deviation_ratio: Estimate
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

    Elements whose standard deviation by the moments is below a tenth of the layer's root mean
    square are left to ε_μ alone: units that hardly ever fire have a sampled one that is noise. So
    are those that no draw moves.

    Args:
        layer: its moments.
        totals: sums of its draws.
        errors: standard errors of the sampled means and standard deviations.
    """
    mean, deviation = totals.mean, totals.deviation
    rest = list(totals.without())
    counted = _counted(layer, deviation, rest)
    off = _ratio(np.abs(layer.mean - mean), deviation, layer.deviation)
    offs = [_ratio(np.abs(layer.mean - m), d, layer.deviation) for m, d in rest]
    log = _mean_log(layer.deviation, deviation, counted)
    logs = [_mean_log(layer.deviation, d, counted) for _, d in rest]
    corrected = len(logs) * log - (len(logs) - 1) * float(np.mean(logs))  # for the bias of logs
    ratio = math.exp(corrected)
    units = np.where(counted, deviation, 1.0)
    ratios = np.where(counted, layer.deviation, 1.0) / units
    return Measures(
        Estimate(off, _jackknife(offs)),
        math.sqrt(2 / (math.pi * totals.count)),
        Estimate(ratio, ratio * _jackknife(logs)),
        _worst(np.where(counted, layer.mean - mean, 0.0) / units, errors[0] / units, np.abs),
        _worst(ratios, ratios * errors[1] / units, lambda part: np.abs(np.log(part))),
        _correlation_error(layer, totals),
    )


def _counted(layer: Layer, deviation: np.ndarray, rest: list) -> np.ndarray:
    size = np.sqrt(np.mean(layer.deviation**2))
    moved = (deviation > 0) & np.all([part > 0 for _, part in rest], axis=0)
    return moved & (layer.deviation > 0) & (layer.deviation >= SMALL * size)


def _ratio(difference: np.ndarray, deviation: np.ndarray, known: np.ndarray) -> float:
    """Means in units of the mean standard deviation: the sampled one, else the known one."""
    unit = float(np.mean(deviation)) or float(np.mean(known))
    return float(np.mean(difference)) / unit if unit > 0 else 0.0


def _mean_log(known: np.ndarray, deviation: np.ndarray, counted: np.ndarray) -> float:
    return float(np.mean(np.log(known[counted] / deviation[counted]))) if counted.any() else 0.0


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
