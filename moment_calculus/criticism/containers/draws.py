"""Data classes for draws of a model's latent sites and for the model's values at these draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Arrays = Mapping[str, np.ndarray]  # by site


@dataclass(frozen=True)
class FromPosterior:
    """Mark draws that come from the posterior itself, such as those of MCMC."""


@dataclass(frozen=True)
class FromResampling(FromPosterior):
    """Mark draws of an approximation that were resampled by importance weights."""

    weights: str  # k̂ and the effective share of the draws, as text


@dataclass(frozen=True)
class FromApproximation:
    """Mark draws of an approximation whose density is known."""

    log_density: np.ndarray  # log q of every draw on the sites' supports, [chains, draws]


@dataclass(frozen=True)
class NoDensity:
    """Mark draws of an approximation whose density does not exist or is not known."""

    reason: str  # why, as text for the user


@dataclass(frozen=True)
class Draws:
    """Draws of the latent sites of a model."""

    source: str  # class name of the guide, "LinearResponse", or name of the MCMC kernel
    values: Arrays  # by site, on its support, [chains, draws, ...]
    # what is known of the distribution of the draws
    origin: FromPosterior | FromApproximation | NoDensity
    # of the sampler, by ArviZ's names, [chains, draws]
    statistics: Arrays = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of chains and of draws per chain."""
        chains, draws = next(iter(self.values.values())).shape[:2]
        return chains, draws

    @property
    def first(self) -> dict[str, np.ndarray]:
        """Return the first draw of every site."""
        return {name: value[0, 0] for name, value in self.values.items()}

    @property
    def flat(self) -> dict[str, np.ndarray]:
        """Return the values with all chains joined, [chains · draws, ...] by site."""
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in self.values.items()}

    def thinned(self, count: int) -> Draws:
        """Return every n-th draw: at most ``count`` of all chains, at least one of each chain."""
        chains, draws = self.shape
        step = -(-draws // max(1, count // chains))
        if step == 1:
            return self
        values = {name: value[:, ::step] for name, value in self.values.items()}
        statistics = {name: value[:, ::step] for name, value in self.statistics.items()}
        origin = self.origin
        if isinstance(origin, FromApproximation):
            origin = FromApproximation(origin.log_density[:, ::step])
        return Draws(self.source, values, origin, statistics)


@dataclass(frozen=True)
class Evaluation:
    """The values of a model at draws of its latent sites; the first axis is [draws]."""

    log_joint: np.ndarray  # log p(latent sites, observations) with scales and masks, [draws]
    log_likelihood: Arrays  # of each batch element of an observed site, without scales
    deterministic: Arrays  # values of the deterministic sites
    predictive: Arrays  # replicated observations by site


@dataclass(frozen=True)
class PriorDraws:
    """Draws from the prior; the first axis of each array is [draws]."""

    sites: Arrays  # latent and deterministic sites
    predictive: Arrays  # observed sites
