"""Predictions of an approximation beside those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

from moment_calculus.criticism.comparison.chains import mean_errors

ELEMENTS = 500  # of which distances are taken: some milliseconds each


@dataclass(frozen=True)
class Mixture:
    """What the draws of chains predict together of one site.

    Args:
        shape: numbers of chains and draws.
        means: of the observation given each draw, [chains · draws, ...]; probabilities of classes.
        mean: of all.
        variance: likewise.
        draws: of observations, [draws, ...]; None for classes.
    """

    shape: tuple[int, int]
    means: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    draws: np.ndarray | None

    def error(self, scale: np.ndarray) -> float:
        """Monte Carlo standard error of the mean, root mean square over some elements.

        Args:
            scale: in units of which it is.
        """
        places = _places(self.mean.size)
        some = self.means.reshape(*self.shape, -1)[..., places]
        return float(np.sqrt(np.nanmean((mean_errors(some) / scale.ravel()[places]) ** 2)))


@dataclass(frozen=True)
class Predicted:
    """What an approximation predicts of one site.

    Args:
        mean: of the observation; probabilities of classes.
        variance: likewise.
        draws: of observations, [draws, ...]; None for classes.
    """

    mean: np.ndarray
    variance: np.ndarray
    draws: np.ndarray | None


@dataclass(frozen=True)
class PredictiveComparison:
    """One observed site, elementwise.

    Args:
        site: its name.
        source: the approximation.
        difference: of predictive means, in predictive standard deviations of the chains.
        error: Monte Carlo standard error of it, of the chains, root mean square.
        variance_ratio: of predictive variances to those of the chains.
        distance: of the predictive marginals: Wasserstein distances of draws, in predictive
            standard deviations; of classes total variation.
        noise: the distances that draws of one distribution have; zero for classes.
    """

    site: str
    source: str
    difference: np.ndarray
    error: float
    variance_ratio: np.ndarray
    distance: np.ndarray
    noise: float


def compared_predictions(
    chains: Mapping[str, Mixture], others: Mapping[str, Mapping[str, Predicted]]
) -> tuple[PredictiveComparison, ...]:
    """Each observed site by each approximation.

    Args:
        chains: by site.
        others: by approximation, then by site.
    """
    return tuple(
        _compared(site, source, mixture, by_site[site])
        for site, mixture in chains.items()
        for source, by_site in others.items()
    )


def _compared(site: str, source: str, chains: Mixture, other: Predicted) -> PredictiveComparison:
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


def _distances(chains: Mixture, other: Predicted, scale: np.ndarray) -> tuple[np.ndarray, float]:
    if chains.draws is None or other.draws is None:
        return 0.5 * np.abs(other.mean - chains.mean).sum(-1), 0.0
    ours, theirs = (_columns(part.draws) for part in (other, chains))
    half = len(theirs) // 2
    units = _columns(scale[None])[0]
    first, second = theirs[:half], theirs[half:]
    found, noise = _each_distance(ours[:half], first), _each_distance(second, first)
    return found / units, float(np.nanmean(noise / units))


def _each_distance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.array([wasserstein_distance(*pair) for pair in zip(ours.T, theirs.T, strict=True)])


def _columns(draws: Any) -> np.ndarray:
    """Draws of some elements, the same of any draws of one site: [draws, elements]."""
    flat = np.asarray(draws, np.float64).reshape(len(draws), -1)
    return flat[:, _places(flat.shape[1])]


def _places(size: int) -> np.ndarray:
    return np.linspace(0, size - 1, min(ELEMENTS, size)).astype(int)
