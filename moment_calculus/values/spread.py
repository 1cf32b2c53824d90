"""How far a value spreads: variance and covariances; and what within it is tied to what."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any

from moment_calculus.numerics.arrays import Array

Lazy = Array | Callable[[], Array] | None


class Spread:
    """Variance and covariance of a value, each computed when it is first needed.

    Args:
        variance: array of the value's shape; may be omitted when ``covariance`` is given.
        covariance: ``batch + [d, d]`` over the feature axis, which is propagated, or a callable
            that computes it; None for components that are propagated as independent.
        joint: likewise, of a value whose components are propagated as independent (diagonal
            mode), for the cross-covariance of its slices.
    """

    __slots__ = ("covariance", "joint", "variance")

    def __init__(
        self, variance: Array | None = None, covariance: Lazy = None, joint: Lazy = None
    ) -> None:
        self.variance, self.covariance, self.joint = variance, covariance, joint

    @property
    def plain(self) -> bool:
        """Whether the variance is all there is."""
        return self.covariance is None and self.joint is None

    @property
    def is_pending(self) -> bool:
        """Whether a covariance is still to be computed."""
        return callable(self.covariance) or callable(self.joint)

    def computed(self, kind: str, check: Callable[[], Any]) -> Array | None:
        """The covariance or the joint covariance; None if there is none.

        Args:
            kind: which of the two.
            check: called before one is computed; it may refuse.
        """
        known = getattr(self, kind)
        if callable(known):
            check()
            known = known()
            setattr(self, kind, known)
        return known


class Ties(IntEnum):
    """Which components of a value may depend on each other; the more, the larger.

    A value that says nothing of its ties has all of them.
    """

    NONE = 0
    FEATURES = 1
    """Features of one element of the batch; the elements are independent of each other."""
    ALL = 2


def most(values: Iterable[Any]) -> Ties:
    """The ties of values side by side that are independent of each other.

    Args:
        values: Gaussian values.
    """
    return max((value.ties for value in values), default=Ties.NONE)


def none_or_all(independent: bool) -> Ties:
    """Ties of a value of which only is known whether all of its components are independent.

    Args:
        independent: whether they are.
    """
    return Ties.NONE if independent else Ties.ALL
