"""Compare predictions of an approximation with those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

from moment_calculus.criticism.comparison.chains import mean_errors

ELEMENTS = 500  # largest number of elements whose distances are computed, in some milliseconds each


@dataclass(frozen=True)
class Mixture:
    """The prediction of one site by all draws of the chains together."""

    shape: tuple[int, int]  # numbers of chains and draws
    means: np.ndarray  # of observations given each draw, [chains · draws, ...]
    mean: np.ndarray  # of observations by the mixture; probabilities for classes
    variance: np.ndarray
    draws: np.ndarray | None  # of observations, [draws, ...]; None for classes

    def error(self, scale: np.ndarray) -> float:
        """Return the root mean square Monte Carlo error of the mean, in units of ``scale``."""
        places = _places(self.mean.size)
        some = self.means.reshape(*self.shape, -1)[..., places]
        return float(np.sqrt(np.nanmean((mean_errors(some) / scale.ravel()[places]) ** 2)))


@dataclass(frozen=True)
class PredictionDraws:
    """The prediction of one site by an approximation."""

    mean: np.ndarray  # of observations; probabilities for classes
    variance: np.ndarray
    draws: np.ndarray | None  # of observations, [draws, ...]; None for classes


@dataclass(frozen=True)
class PredictiveComparison:
    """The comparison of one observed site, elementwise."""

    site: str
    source: str  # the approximation
    difference: np.ndarray  # of predictive means, in the chains' predictive standard deviations
    error: float  # root mean square Monte Carlo error of the difference
    variance_ratio: np.ndarray  # predictive variance over that of the chains
    # Of the marginals: Wasserstein distance of draws, in predictive standard deviations;
    # total variation for classes.
    distance: np.ndarray
    noise: float  # distance between draws of the same distribution; zero for classes


def compare_predictions(
    chains: Mapping[str, Mixture], others: Mapping[str, Mapping[str, PredictionDraws]]
) -> tuple[PredictiveComparison, ...]:
    """Compare each observed site by each approximation; chains by site."""
    return tuple(
        _compare_source(site, source, mixture, by_site[site])
        for site, mixture in chains.items()
        for source, by_site in others.items()
    )


def _compare_source(
    site: str, source: str, chains: Mixture, other: PredictionDraws
) -> PredictiveComparison:
    scale = np.sqrt(chains.variance)
    safe = np.where(scale > 0, scale, np.nan)
    distance, noise = _distances(chains, other, safe)
    return PredictiveComparison(
        site,
        source,
        (other.mean - chains.mean) / safe,
        chains.error(safe),
        other.variance / safe**2,
        distance,
        noise,
    )


def _distances(
    chains: Mixture, other: PredictionDraws, scale: np.ndarray
) -> tuple[np.ndarray, float]:
    if chains.draws is None or other.draws is None:
        return 0.5 * np.abs(other.mean - chains.mean).sum(-1), 0.0
    ours, theirs = (_columns(part.draws) for part in (other, chains))
    half = len(theirs) // 2
    units = _columns(scale[None])[0]
    first, second = theirs[:half], theirs[half:]
    distance, noise = _each_distance(ours[:half], first), _each_distance(second, first)
    return distance / units, float(np.nanmean(noise / units))


def _each_distance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.array([wasserstein_distance(*pair) for pair in zip(ours.T, theirs.T, strict=True)])


def _columns(draws: Any) -> np.ndarray:
    """Return draws of a fixed selection of elements, [draws, elements]."""
    flat = np.asarray(draws, np.float64).reshape(len(draws), -1)
    return flat[:, _places(flat.shape[1])]


def _places(size: int) -> np.ndarray:
    return np.linspace(0, size - 1, min(ELEMENTS, size)).astype(int)
