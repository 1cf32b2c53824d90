"""The source paper's rules: approximate covariances of relu, leaky relu and the Heaviside step.

Every other function, and every variance, is exact.

Source: Wu et al. 2019, Table 1, mended; see :mod:`moment_calculus.functions.pairs.dvi`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Activation, Surrogate
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.rulebook import RuleBook


@dataclass(frozen=True)
class _ByDVI(Activation):
    """A function with the paper's covariances.

    Args:
        function: the function.
    """

    function: Activation
    name = "by DVI"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Exact."""
        return self.function.moments(mean, variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Exact."""
        return self.function.hermite(mean, variance, order)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Exact."""
        return self.function.gain(mean, variance)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """The paper's, where it has one."""
        return self.function.dvi_covariance(mean, variance, covariance)

    def surrogate(self, single: bool) -> Surrogate | None:
        """As of the function."""
        return self.function.surrogate(single)


class _DVI(RuleBook):
    def ruled(self, function: Any) -> Any:
        """With the paper's covariances."""
        return _ByDVI(function)


BOOK = _DVI("dvi")
