"""Latent sites of an approximation beside those of chains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from moment_calculus.criticism.comparison.chains import mean_errors
from moment_calculus.criticism.containers.draws import Arrays


@dataclass(frozen=True)
class Coordinates:
    """Means and standard deviations of all coordinates on the unconstrained space.

    Args:
        loc: by site.
        scale: likewise.
    """

    loc: Arrays
    scale: Arrays

    @classmethod
    def of_draws(cls, values: Arrays) -> Coordinates:
        """Those of draws.

        Args:
            values: on the unconstrained space, by site, [chains, draws, ...].
        """
        return cls(
            {name: value.mean((0, 1)) for name, value in values.items()},
            {name: value.std((0, 1), ddof=1) for name, value in values.items()},
        )


@dataclass(frozen=True)
class SiteComparison:
    """One latent site on the unconstrained space, elementwise.

    Args:
        name: of the site.
        difference: of the means, in standard deviations of the chains.
        error: Monte Carlo standard error of it, of the chains.
        ratios: of standard deviations to those of the chains, by approximation.
    """

    name: str
    difference: np.ndarray
    error: np.ndarray
    ratios: Mapping[str, np.ndarray]

    @property
    def largest(self) -> int:
        """Place of the largest difference, in the flat array."""
        return int(np.abs(self.difference).argmax())


def compared_sites(
    chains: Arrays, means: Coordinates, scales: Mapping[str, Arrays]
) -> tuple[SiteComparison, ...]:
    """Each latent site.

    Args:
        chains: draws on the unconstrained space, by site, [chains, draws, ...].
        means: those of the approximation.
        scales: standard deviations by approximation, then by site.
    """
    found = []
    for name, values in chains.items():
        scale = values.std((0, 1), ddof=1)
        safe = np.where(scale > 0, scale, np.nan)
        difference = (means.loc[name] - values.mean((0, 1))) / safe
        ratios = {kind: by_site[name] / safe for kind, by_site in scales.items()}
        found.append(SiteComparison(name, difference, mean_errors(values) / safe, ratios))
    return tuple(found)
