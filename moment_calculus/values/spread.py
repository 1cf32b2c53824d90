"""The spread of a value: variance, covariances, and which components may depend on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from moment_calculus.numerics.arrays import Array

Lazy = Array | Callable[[], Array] | None


class Spread:
    """Variance and covariances of a value, each computed when it is first needed."""

    # variance: of the value's shape; may be omitted beside a covariance. covariance:
    # batch + [d, d] over the feature axis, or a callable that computes it; None if
    # components are propagated as independent. joint: the same for a value in diagonal
    # mode, for covariances of its slices.
    __slots__ = ("covariance", "joint", "variance")

    def __init__(
        self, variance: Array | None = None, covariance: Lazy = None, joint: Lazy = None
    ) -> None:
        self.variance, self.covariance, self.joint = variance, covariance, joint

    @property
    def plain(self) -> bool:
        """Return whether there is a variance only."""
        return self.covariance is None and self.joint is None

    @property
    def is_pending(self) -> bool:
        """Return whether a covariance is still to be computed."""
        return callable(self.covariance) or callable(self.joint)

    def compute(self, kind: str, check: Callable[[], Any]) -> Array | None:
        """Return the covariance of this attribute name, or None; ``check`` may raise beforehand."""
        covariance = getattr(self, kind)
        if callable(covariance):
            check()
            covariance = covariance()
            setattr(self, kind, covariance)
        return covariance


class Ties(IntEnum):
    """Which components of a value may depend on each other; larger means more; ALL if unknown."""

    NONE = 0
    FEATURES = 1
    """Features of one element of the batch; the elements are independent of each other."""
    ALL = 2


def strongest_ties(values: Iterable[Any]) -> Ties:
    """Return the ties of independent values side by side."""
    return max((value.ties for value in values), default=Ties.NONE)


def none_or_all(independent: bool) -> Ties:
    """Return NONE for a value whose components are all independent, else ALL."""
    return Ties.NONE if independent else Ties.ALL
