"""Integer powers, whose Hermite expansion is finite and known in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Activation, Array
from moment_calculus.functions.smooth import in_double
from moment_calculus.numerics.special import namespace, safe_scale


@dataclass(frozen=True)
class Power(Activation):
    """The power xⁿ for a natural number n ≥ 1; moments beyond the dtype's range are kept finite.

    E xᵐ = μ E xᵐ⁻¹ + (m − 1) v E xᵐ⁻², in which both terms have the same sign.
    """

    exponent: int = 2  # n
    name = "power"
    superlinear = True

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the bounds; even powers are not negative."""
        return (0.0 if self.exponent % 2 == 0 else -math.inf), math.inf

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x**self.exponent

    def _coefficients(self, mean: Array, variance: Array) -> list[Array]:
        """Return g_k / σᵏ = √k! C(n, k) E xⁿ⁻ᵏ for k = 0 … n."""
        raw = [namespace(mean).ones_like(mean), mean]
        for m in range(2, self.exponent + 1):
            raw.append(mean * raw[-1] + (m - 1) * variance * raw[-2])
        return [
            math.sqrt(math.factorial(k)) * math.comb(self.exponent, k) * raw[self.exponent - k]
            for k in range(self.exponent + 1)
        ]

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance, Σ g_k²."""
        return in_double(self._moments)(mean, variance)

    def _moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        first, *others = self._coefficients(mean, variance)
        total: Any = 0.0
        for term in reversed(others):  # no square root: its gradient is infinite at zero
            total = variance * (term * term + total)
        return first, total

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return in_double(lambda m, v: self._coefficients(m, v)[1:2])(mean, variance)[0]

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients, of which those beyond n are zero."""
        return list(in_double(lambda m, v: self._hermite(m, v, order))(mean, variance))

    def _hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        xp = namespace(mean)
        scale = safe_scale(variance)
        terms = self._coefficients(mean, variance)[1 : order + 1]
        coefficients = [scale**k * term for k, term in enumerate(terms, start=1)]
        return coefficients + [xp.zeros_like(mean)] * (order - len(coefficients))

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariances Σ C_ijᵏ (g_k/σᵏ)(x_i) (g_k/σᵏ)(x_j)."""
        return in_double(self._pairs)(mean, variance, covariance)[0]

    def _pairs(self, mean: Array, variance: Array, covariance: Array) -> tuple[Array]:
        total: Any = 0.0
        for term in reversed(self._coefficients(mean, variance)[1:]):
            total = covariance * (total + term[..., :, None] * term[..., None, :])
        return (total,)
