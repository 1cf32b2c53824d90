"""Compare sites, predictions and leave-one-out with those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from moment_inference.criticism.arviz_access import (
    DIVERGING,
    Scores,
    largest_rhat,
    mean_errors,
    smallest_effective,
)
from moment_inference.criticism.draws import Arrays, Draws

MAX_RHAT = 1.01  # largest R-hat of chains that have mixed
MIN_EFFECTIVE = 400.0  # effective draws that quantiles and variances need
ELEMENTS = 500  # largest number of elements whose distances are computed, in ms each


def positive(scale: np.ndarray) -> np.ndarray:
    """Return standard deviations to divide by: NaN where they are zero."""
    return np.where(scale > 0, scale, np.nan)


@dataclass(frozen=True)
class Chains:
    """Convergence diagnostics, which say whether chains can serve as a reference."""

    shape: tuple[int, int]  # numbers of chains and draws
    divergences: int | None  # divergent transitions; None if not known
    rhat: float  # largest R-hat; of a single chain that of its halves
    effective: float  # smallest effective sample size

    @classmethod
    def of(cls, draws: Draws) -> Chains:
        """Compute the diagnostics.

        Source: Vehtari et al. 2021, Rank-normalization, folding, and localization.
        """
        diverging, (chains, count) = draws.statistics.get(DIVERGING), draws.shape
        values = draws.values
        if chains == 1:
            half = count // 2
            values = {
                name: np.concatenate([value[:, :half], value[:, half : 2 * half]])
                for name, value in values.items()
            }
        return cls(
            draws.shape,
            None if diverging is None else int(np.sum(diverging)),
            largest_rhat(values),
            smallest_effective(draws.values),
        )

    @property
    def warnings(self) -> list[str]:
        """Return reasons why the chains may be a bad reference, in words."""
        messages = []
        if self.divergences:
            messages.append(
                f"{self.divergences} transitions diverged: the reference is biased where the "
                "posterior is narrow; raise the target acceptance, or reparameterise"
            )
        if self.rhat > MAX_RHAT:
            messages.append(
                f"R-hat is up to {self.rhat:.3f}: the chains have not mixed; where a posterior has "
                "several modes, as of a network, only what is predicted can be compared"
            )
        if self.effective < MIN_EFFECTIVE:
            messages.append(
                f"only {self.effective:.0f} effective draws: take more before small differences "
                "are believed"
            )
        return messages


@dataclass(frozen=True)
class Coordinates:
    """Means and standard deviations of all sites on the unconstrained space."""

    loc: Arrays
    scale: Arrays

    @classmethod
    def of_draws(cls, values: Arrays) -> Coordinates:
        """Estimate them from unconstrained draws [chains, draws, ...] by site."""
        return cls(
            {name: value.mean((0, 1)) for name, value in values.items()},
            {name: value.std((0, 1), ddof=1) for name, value in values.items()},
        )


@dataclass(frozen=True)
class SiteComparison:
    """The comparison of one latent site on the unconstrained space, elementwise."""

    name: str
    difference: np.ndarray  # of the means, in the chains' standard deviations
    error: np.ndarray  # the chains' Monte Carlo standard error of the difference
    # standard deviations over those of the chains, by approximation
    ratios: Mapping[str, np.ndarray]

    @property
    def largest(self) -> int:
        """Return the index of the largest difference in the flat array."""
        return int(np.abs(self.difference).argmax())


def compare_sites(
    chains: Arrays,  # unconstrained draws by site, [chains, draws, ...]
    means: Arrays,
    scales: Mapping[str, Arrays],  # by approximation, then by site
) -> tuple[SiteComparison, ...]:
    """Compare each latent site."""
    exact, comparisons = Coordinates.of_draws(chains), []
    for name, values in chains.items():
        scale = positive(exact.scale[name])
        difference = (means[name] - exact.loc[name]) / scale
        ratios = {source: by_site[name] / scale for source, by_site in scales.items()}
        comparisons.append(SiteComparison(name, difference, mean_errors(values) / scale, ratios))
    return tuple(comparisons)


@dataclass(frozen=True)
class PredictionDraws:
    """The prediction of one site by an approximation, or by all draws of chains."""

    mean: np.ndarray  # of observations; probabilities for classes
    variance: np.ndarray
    draws: np.ndarray | None  # of observations, [draws, ...]; None for classes
    # Of chains: means of observations given each draw, [chains, draws, ...].
    means_by_chain: np.ndarray | None = None


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

    @classmethod
    def of(
        cls, site: str, source: str, chains: PredictionDraws, other: PredictionDraws
    ) -> PredictiveComparison:
        """Compare the prediction of an approximation with that of chains."""
        scale = positive(np.sqrt(chains.variance))
        difference = (other.mean - chains.mean) / scale
        distance, noise = _distances(chains, other, scale)
        ratio = other.variance / scale**2
        return cls(site, source, difference, _error(chains, scale), ratio, distance, noise)


def _error(chains: PredictionDraws, scale: np.ndarray) -> float:
    """Return the RMS Monte Carlo error of the mean, in units of ``scale``."""
    assert chains.means_by_chain is not None
    indices = _places(scale.size)
    some = chains.means_by_chain.reshape(*chains.means_by_chain.shape[:2], -1)[..., indices]
    return float(np.sqrt(np.nanmean((mean_errors(some) / scale.ravel()[indices]) ** 2)))


def _distances(
    chains: PredictionDraws, other: PredictionDraws, scale: np.ndarray
) -> tuple[np.ndarray, float]:
    if chains.draws is None or other.draws is None:
        return 0.5 * np.abs(other.mean - chains.mean).sum(-1), 0.0
    ours, theirs = _columns(other.draws), _columns(chains.draws)
    half, units = len(theirs) // 2, _columns(scale[None])[0]
    first, second = theirs[:half], theirs[half:]
    distance, noise = _each_distance(ours[:half], first), _each_distance(second, first)
    return distance / units, float(np.nanmean(noise / units))


def _each_distance(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return np.array(
        [scipy.stats.wasserstein_distance(*pair) for pair in zip(ours.T, theirs.T, strict=True)]
    )


def _columns(draws: Any) -> np.ndarray:
    """Return draws of a fixed selection of elements, [draws, elements]."""
    flat = np.asarray(draws, np.float64).reshape(len(draws), -1)
    return flat[:, _places(flat.shape[1])]


def _places(size: int) -> np.ndarray:
    return np.linspace(0, size - 1, min(ELEMENTS, size)).astype(int)


@dataclass(frozen=True)
class LooComparison:
    """Expected log predictive densities (elpd) of one approximation and of chains."""

    site: str  # the observed site
    source: str  # the approximation
    elpd: float  # of the approximation
    chains: float  # elpd of the chains
    difference: float  # elpd of the approximation minus that of the chains
    error: float  # standard error of the difference over the data
    joint_shape: float  # k̂ of the approximation's weights
    bad: int  # number of data whose weights are unreliable

    @classmethod
    def of(cls, site: str, source: str, chains: Scores, other: Scores) -> LooComparison:
        """Compare the scores of an approximation with those of chains."""
        differences = (other.pointwise - chains.pointwise).ravel()
        return cls(
            site,
            source,
            other.total,
            chains.total,
            float(differences.sum()),
            float(np.sqrt(differences.size) * differences.std()),
            other.joint_shape,
            int(other.is_bad.sum()),
        )
