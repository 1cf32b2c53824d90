"""Draws of the latent sites of a model, and what the model says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Arrays = Mapping[str, np.ndarray]  # by site


@dataclass(frozen=True)
class Posterior:
    """The draws are of the posterior itself, as those of a chain."""


@dataclass(frozen=True)
class Resampled(Posterior):
    """The draws are of an approximation, resampled by importance weights.

    Args:
        weights: k̂ and the effective share, in words.
    """

    weights: str


@dataclass(frozen=True)
class Approximation:
    """The draws are of an approximation whose density is known.

    Args:
        log_density: log q of every draw, on the sites' supports, [chains, draws].
    """

    log_density: np.ndarray


@dataclass(frozen=True)
class WithoutDensity:
    """The draws are of an approximation that has no density, or none that is known.

    Args:
        reason: why, in words.
    """

    reason: str


@dataclass(frozen=True)
class Draws:
    """Draws of the latent sites of a model.

    Args:
        source: what they are of: name of a guide's class, ``"LinearResponse"``, of a kernel.
        values: by site, on its support, [chains, draws, ...].
        law: what is known of the distribution that they are of.
        statistics: of a sampler, by ArviZ's names, [chains, draws].
    """

    source: str
    values: Arrays
    law: Posterior | Approximation | WithoutDensity
    statistics: Arrays = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of chains and draws."""
        chains, draws = next(iter(self.values.values())).shape[:2]
        return chains, draws

    @property
    def first(self) -> dict[str, np.ndarray]:
        """One draw of every site."""
        return {name: value[0, 0] for name, value in self.values.items()}

    @property
    def flat(self) -> dict[str, np.ndarray]:
        """The values of all chains one after the other, [chains · draws, ...]."""
        return {name: value.reshape(-1, *value.shape[2:]) for name, value in self.values.items()}

    def thinned(self, count: int) -> Draws:
        """Some of the draws, equally far apart, if there are more.

        Args:
            count: how many of all chains together, at most, and at least one of each.
        """
        chains, draws = self.shape
        step = -(-draws // max(1, count // chains))
        if step == 1:
            return self
        values = {name: value[:, ::step] for name, value in self.values.items()}
        statistics = {name: value[:, ::step] for name, value in self.statistics.items()}
        law = self.law
        if isinstance(law, Approximation):
            law = Approximation(law.log_density[:, ::step])
        return Draws(self.source, values, law, statistics)


@dataclass(frozen=True)
class Evaluation:
    """What a model says of draws of its latent sites, flat along the first axis, of the draws.

    Args:
        log_joint: log p of all latent sites and observations, with scales and masks, [draws].
        log_likelihood: by observed site, of each element of its batch, without scales.
        deterministic: values of the deterministic sites.
        predictive: replicated observations by site.
    """

    log_joint: np.ndarray
    log_likelihood: Arrays
    deterministic: Arrays
    predictive: Arrays


@dataclass(frozen=True)
class PriorDraws:
    """Draws of the prior, flat along the first axis.

    Args:
        sites: of latent and deterministic sites.
        predictive: of the observed ones.
    """

    sites: Arrays
    predictive: Arrays
