"""What draws of chains tell of themselves: convergence and Monte Carlo errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.containers.arviz_line import arviz
from moment_calculus.criticism.containers.draws import Arrays

GOOD = 1.01  # R-hat of chains that have mixed
FEW = 400.0  # effective draws with which quantiles and variances begin to be known


@dataclass(frozen=True)
class Chains:
    """Whether chains can be a reference.

    Args:
        shape: numbers of chains and draws.
        divergences: number of divergent transitions; None where it is not known.
        rhat: the largest R-hat; of a single chain that of its halves.
        effective: the smallest number of effective draws.
    """

    shape: tuple[int, int]
    divergences: int | None
    rhat: float
    effective: float

    @classmethod
    def of(cls, values: Arrays, statistics: Arrays) -> Chains:
        """Those of latent sites.

        Args:
            values: by site, [chains, draws, ...].
            statistics: of the sampler, by ArviZ's names.

        Source: Vehtari et al. 2021, Rank-normalization, folding, and localization.
        """
        first = next(iter(values.values()))
        found = _dataset(values)
        diverging = statistics.get("diverging")
        return cls(
            (first.shape[0], first.shape[1]),
            None if diverging is None else int(np.sum(diverging)),
            _extreme(arviz().rhat(_dataset(_halved(values))), np.nanmax),
            _extreme(arviz().ess(found), np.nanmin),
        )

    @property
    def warnings(self) -> list[str]:
        """What speaks against them, in words."""
        found = []
        if self.divergences:
            found.append(
                f"{self.divergences} transitions diverged: the reference is biased where the "
                "posterior is narrow; raise the target acceptance, or reparameterise"
            )
        if self.rhat > GOOD:
            found.append(
                f"R-hat is up to {self.rhat:.3f}: the chains have not mixed; where a posterior has "
                "several modes, as of a network, only what is predicted can be compared"
            )
        if self.effective < FEW:
            found.append(
                f"only {self.effective:.0f} effective draws: take more before small differences "
                "are believed"
            )
        return found


def mean_errors(values: np.ndarray) -> np.ndarray:
    """Monte Carlo standard errors of means over chains.

    Args:
        values: [chains, draws, ...].

    Returns:
        Array of the other axes; infinite where nothing is known of them.
    """
    found = arviz().mcse(_dataset({"value": values}), method="mean")["value"].values
    constant = values.std((0, 1)) == 0
    return np.where(constant, 0.0, np.where(np.isnan(found), np.inf, found))


def _halved(values: Arrays) -> dict[str, np.ndarray]:
    """A single chain as two; several as they are."""
    found = {}
    for name, value in values.items():
        half = value.shape[1] // 2
        parts = [value[:, :half], value[:, half : 2 * half]]
        found[name] = np.concatenate(parts) if len(value) == 1 else value
    return found


def _dataset(values: Mapping[str, np.ndarray]) -> Any:
    return arviz().dict_to_dataset({name: np.asarray(part) for name, part in values.items()})


def _extreme(found: Any, most: Any) -> float:
    parts = [found[name].values.ravel() for name in found.data_vars]
    values = np.concatenate(parts)
    return float(most(values)) if np.isfinite(values).any() else float("nan")
