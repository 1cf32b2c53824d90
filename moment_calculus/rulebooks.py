"""Rulebooks: which of several rules serves an operation, chosen once per propagation."""

from __future__ import annotations

from dataclasses import dataclass

COVARIANCES = ("full", "diagonal")
CATEGORICAL = ("delta", "jensen")


@dataclass(frozen=True)
class Rulebook:
    """Named choice among the rules that exist for one operation.

    Args:
        name: how users select it.
        pair_method: how covariances of two activations are computed, see
            :func:`moment_calculus.pairs.covariance`.
        mehler_order: number of terms of the Mehler series where it serves.
    """

    name: str
    pair_method: str
    mehler_order: int = 16


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
    """

    covariance: str = "full"
    rulebook: Rulebook = RULEBOOKS["exact"]
    categorical: str = "delta"

    @classmethod
    def named(cls, covariance: str, rules: str, categorical: str = "delta") -> Propagation:
        """Build a propagation from the names a user gives.

        Args:
            covariance: ``"full"`` or ``"diagonal"``.
            rules: a key of :data:`RULEBOOKS`.
            categorical: ``"delta"`` or ``"jensen"``.

        Raises:
            ValueError: if a name is unknown; the message lists the candidates.
        """
        given = (
            ("covariance", covariance, COVARIANCES),
            ("rules", rules, tuple(RULEBOOKS)),
            ("categorical", categorical, CATEGORICAL),
        )
        for option, choice, candidates in given:
            if choice not in candidates:
                raise ValueError(f"{option}={choice!r} is not one of {', '.join(candidates)}")
        return cls(covariance, RULEBOOKS[rules], categorical)

    @property
    def full(self) -> bool:
        """Whether covariances over the feature axis are carried."""
        return self.covariance == "full"
