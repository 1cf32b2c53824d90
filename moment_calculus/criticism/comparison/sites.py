"""Compare latent sites of an approximation with those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moment_calculus.criticism.comparison.chains import mean_errors
from moment_calculus.criticism.containers.draws import Arrays


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
    means: Coordinates,
    scales: Mapping[str, Arrays],
) -> tuple[SiteComparison, ...]:
    """Compare each latent site; scales are by approximation, then by site."""
    comparisons = []
    for name, values in chains.items():
        scale = values.std((0, 1), ddof=1)
        safe = np.where(scale > 0, scale, np.nan)
        difference = (means.loc[name] - values.mean((0, 1))) / safe
        ratios = {kind: by_site[name] / safe for kind, by_site in scales.items()}
        comparisons.append(SiteComparison(name, difference, mean_errors(values) / safe, ratios))
    return tuple(comparisons)
