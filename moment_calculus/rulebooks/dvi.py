"""The source paper's rules: approximate covariances of relu, leaky relu and the Heaviside step.

Every other function, and every variance, is exact.

Source: Wu et al. 2019, Table 1, mended; see :mod:`moment_calculus.functions.pairs.dvi`.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.base import Delegating
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import RuleBook


class _ByDVI(Delegating):
    """A function with the paper's covariances, where it has one."""

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """The paper's."""
        return self.function.dvi_covariance(mean, variance, covariance)

    def cross_covariance(self, other: Any, *rest: Any) -> Array:
        """As of the functions themselves."""
        return self.function.cross_covariance(other.function, *rest)


class _DVI(RuleBook):
    def ruled(self, function: Any) -> Any:
        """With the paper's covariances."""
        return _ByDVI(function)


BOOK = _DVI("dvi")
