"""How far a value spreads: its variance, and the covariances over its feature axis."""

from __future__ import annotations

from collections.abc import Callable
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
