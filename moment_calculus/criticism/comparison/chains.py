"""Assess MCMC chains by convergence diagnostics and Monte Carlo errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.criticism.containers.arviz_access import arviz
from moment_calculus.criticism.containers.draws import Arrays

MAX_RHAT = 1.01  # largest R-hat of chains that have mixed
MIN_EFFECTIVE = 400.0  # effective draws that quantiles and variances need


@dataclass(frozen=True)
class Chains:
    """Convergence diagnostics, which say whether chains can serve as a reference."""

    shape: tuple[int, int]  # numbers of chains and draws
    divergences: int | None  # divergent transitions; None if not known
    rhat: float  # largest R-hat; of a single chain that of its halves
    effective: float  # smallest effective sample size

    @classmethod
    def of(cls, values: Arrays, statistics: Arrays) -> Chains:
        """Compute the diagnostics from draws of the latent sites, [chains, draws, ...] each.

        Source: Vehtari et al. 2021, Rank-normalization, folding, and localization.
        """
        first = next(iter(values.values()))
        data_set = _dataset(values)
        diverging = statistics.get("diverging")
        return cls(
            (first.shape[0], first.shape[1]),
            None if diverging is None else int(np.sum(diverging)),
            _extreme(arviz().rhat(_dataset(_halved(values))), np.nanmax),
            _extreme(arviz().ess(data_set), np.nanmin),
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


def mean_errors(values: np.ndarray) -> np.ndarray:
    """Return standard errors of means over [chains, draws, ...]; infinite if not estimable."""
    errors = arviz().mcse(_dataset({"value": values}), method="mean")["value"].values
    constant = values.std((0, 1)) == 0
    return np.where(constant, 0.0, np.where(np.isnan(errors), np.inf, errors))


def _halved(values: Arrays) -> dict[str, np.ndarray]:
    """Return a single chain as its two halves, several chains unchanged."""
    halves = {}
    for name, value in values.items():
        half = value.shape[1] // 2
        parts = [value[:, :half], value[:, half : 2 * half]]
        halves[name] = np.concatenate(parts) if len(value) == 1 else value
    return halves


def _dataset(values: Mapping[str, np.ndarray]) -> Any:
    return arviz().dict_to_dataset({name: np.asarray(part) for name, part in values.items()})


def _extreme(diagnostics: Any, most: Any) -> float:
    parts = [diagnostics[name].values.ravel() for name in diagnostics.data_vars]
    values = np.concatenate(parts)
    return float(most(values)) if np.isfinite(values).any() else float("nan")
