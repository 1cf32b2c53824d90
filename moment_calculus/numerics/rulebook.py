"""Rule books: which of several rules serves an operation, chosen once per propagation."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

COVARIANCES = ("full", "diagonal")
CATEGORICAL = ("points", "pairs", "tilted", "jensen", "delta", "sample")
OPERATIONS = ("product", "linear")


@dataclass(frozen=True)
class RuleBook:
    """Rules by which moments are propagated; this one leaves every operation its own, exact ones.

    The step that applies a function asks the book for the function with its moments, gain and
    pairs; an operation asks it for a rule to take the place of its own. The books of the library
    are in :mod:`moment_calculus.rulebooks`.

    Args:
        name: how users select it.
        mehler_order: number of terms of the Mehler series where it serves.
        operations: rules in the place of those of operations, by the name of the operation:
            ``product`` of two Gaussians, ``linear`` map of a Gaussian by Gaussian weights. Each
            takes the arguments of the operation.
    """

    name: str = "exact"
    mehler_order: int = 32
    operations: Mapping[str, Callable[..., Any]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the names of the operations.

        Raises:
            ValueError: if there is no such operation.
        """
        for name in self.operations:
            check_choice("operation", name, OPERATIONS)

    def ruled(self, function: Any) -> Any:
        """The function as the book takes it: with the moments that it gives it.

        Args:
            function: an activation, with its exact moments; of a chain the whole.

        Returns:
            Another activation, such as a :class:`moment_calculus.functions.base.Delegating` one.
        """
        return function


EXACT = RuleBook()


@cache
def half_of_memory() -> float:
    """Half of the physical memory in bytes; 8 GiB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    except (AttributeError, OSError, ValueError):
        return 2.0**33


@dataclass(frozen=True)
class Propagation:
    """How randomness flows through a program: with which covariance and which rules.

    Args:
        covariance: ``"full"`` carries the covariance over the feature axis, ``"diagonal"`` the
            variances only.
        rulebook: the rules that serve the operations.
        categorical: how the expected log-likelihood of classes is approximated, see
            :mod:`moment_calculus.likelihoods.classes`.
        memory_limit: bytes that one covariance may take.
        categorical_draws: number of draws of the logits where they are sampled.
    """

    covariance: str = "full"
    rulebook: RuleBook = EXACT
    categorical: str = "points"
    memory_limit: float = field(default_factory=half_of_memory)
    categorical_draws: int = 1

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            ValueError: if a name is unknown (the message lists the candidates), or the limit is
                not positive, or there are no draws.
        """
        for option, candidates in (("covariance", COVARIANCES), ("categorical", CATEGORICAL)):
            check_choice(option, getattr(self, option), candidates)
        if not self.memory_limit > 0:
            raise ValueError(f"memory_limit={self.memory_limit} must be positive")
        if self.categorical_draws < 1:
            raise ValueError(f"categorical_draws={self.categorical_draws} must be at least 1")

    @property
    def full(self) -> bool:
        """Whether covariances over the feature axis are carried."""
        return self.covariance == "full"

    def replacement(self, operation: str) -> Callable[..., Any] | None:
        """The rule book's rule in the place of an operation's own; None if it has none.

        Args:
            operation: its name, one of :data:`OPERATIONS`.
        """
        return self.rulebook.operations.get(operation)


def check_choice(option: str, choice: Any, candidates: Collection[str]) -> None:
    """Check a name that a user gives.

    Args:
        option: of which option.
        choice: the name.
        candidates: the names that there are.

    Raises:
        ValueError: if it is none of them.
    """
    if choice not in candidates:
        raise ValueError(f"{option}={choice!r} is not one of {', '.join(candidates)}")


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
