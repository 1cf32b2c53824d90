"""The rule book ``dvi``: approximate covariances of relu, leaky relu and the Heaviside step.

Every other function, and every variance, is exact. Source: Wu et al. 2019, Table 1, with
corrections; see :mod:`moment_calculus.functions.families.relu`.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.base import Delegating
from moment_calculus.functions.images import image_parts
from moment_calculus.functions.table import PiecewiseLinear
from moment_calculus.numerics.arrays import Array
from moment_calculus.values.propagation import RuleBook


class _ByDVI(Delegating):
    """A function with the covariances of Wu et al. 2019, if they give any."""

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of the function at pairs of features by Wu et al. 2019."""
        return self.function.dvi_covariance(mean, variance, covariance)

    def cross_covariance(self, other: Any, *rest: Any) -> Array:
        """Return the covariance with another function, by the exact rule."""
        return self.function.cross_covariance(other.function, *rest)


class _DVI(RuleBook):
    is_bound = True  # covariances alone are its own

    def ruled(self, function: Any) -> Any:
        """Return the function with the covariances of Wu et al. 2019."""
        parts = image_parts(function) if isinstance(function, PiecewiseLinear) else None
        return _ByDVI(function if parts is None else parts[1](parts[0]))


BOOK = _DVI("dvi")
