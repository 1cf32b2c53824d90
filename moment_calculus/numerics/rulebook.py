"""Rulebooks: which of several rules serves an operation, chosen once per propagation."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache

COVARIANCES = ("full", "diagonal")
CATEGORICAL = ("delta", "jensen", "sample")


@dataclass(frozen=True)
class Rulebook:
    """Named choice among the rules that exist for one operation.

    Args:
        name: how users select it.
        pair_method: how covariances of two activations are computed, see
            :func:`moment_calculus.functions.pairs.covariance.covariance`.
        mehler_order: number of terms of the Mehler series where it serves.
    """

    name: str
    pair_method: str
    mehler_order: int = 16


@cache
def half_of_memory() -> float:
    """Half of the physical memory in bytes; 8 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    except (AttributeError, OSError, ValueError):
        return 2.0**33


RULEBOOKS = {
    "exact": Rulebook("exact", pair_method="exact"),
    "dvi": Rulebook("dvi", pair_method="dvi"),
}


@dataclass(frozen=True)
class Propagation:
    """How randomness flows through a program: with which covariance and which rules.

    Args:
        covariance: ``"full"`` carries the covariance over the feature axis, ``"diagonal"`` the
            variances only.
        rulebook: the rules that serve the operations.
        categorical: how the expected log-likelihood of classes is approximated, see
            :func:`moment_calculus.likelihoods.categorical`.
        memory_limit: bytes that one covariance may take.
        categorical_draws: number of draws of the logits where they are sampled.
    """

    covariance: str = "full"
    rulebook: Rulebook = RULEBOOKS["exact"]
    categorical: str = "delta"
    memory_limit: float = field(default_factory=half_of_memory)
    categorical_draws: int = 1

    @classmethod
    def named(
        cls,
        covariance: str,
        rules: str,
        categorical: str = "delta",
        memory_limit: float | None = None,
        categorical_draws: int = 1,
    ) -> Propagation:
        """Build a propagation from the names a user gives.

        Args:
            covariance: ``"full"`` or ``"diagonal"``.
            rules: a key of :data:`RULEBOOKS`.
            categorical: ``"delta"``, ``"jensen"`` or ``"sample"``.
            memory_limit: bytes that one covariance may take; by default half of the memory.
            categorical_draws: number of draws of the logits for ``"sample"``.

        Raises:
            ValueError: if a name is unknown (the message lists the candidates), or the limit is
                not positive, or there are no draws.
        """
        given = (
            ("covariance", covariance, COVARIANCES),
            ("rules", rules, tuple(RULEBOOKS)),
            ("categorical", categorical, CATEGORICAL),
        )
        for option, choice, candidates in given:
            if choice not in candidates:
                raise ValueError(f"{option}={choice!r} is not one of {', '.join(candidates)}")
        limit = half_of_memory() if memory_limit is None else memory_limit
        if not limit > 0:
            raise ValueError(f"memory_limit={memory_limit} must be positive")
        if categorical_draws < 1:
            raise ValueError(f"categorical_draws={categorical_draws} must be at least 1")
        return cls(covariance, RULEBOOKS[rules], categorical, limit, categorical_draws)

    @property
    def full(self) -> bool:
        """Whether covariances over the feature axis are carried."""
        return self.covariance == "full"


def check_draws(sample_sites: Collection[str], num_particles: int) -> None:
    """Check the options of an ELBO that say what is drawn, and how often.

    Args:
        sample_sites: names of the sites that are drawn.
        num_particles: number of draws.

    Raises:
        ValueError: if the sites are a string instead of a collection, or there are no draws.
    """
    if isinstance(sample_sites, str):
        raise ValueError(f"sample_sites is a collection of names: sample_sites=[{sample_sites!r}]")
    if num_particles < 1:
        raise ValueError(f"num_particles={num_particles} must be at least 1")
