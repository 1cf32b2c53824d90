"""The normal distribution function Φ, and its multiples erf and erfc."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.functions.base import Activation, Array, over_pairs
from moment_calculus.functions.pairs.mixture import StepMixture
from moment_calculus.functions.universal import in_double
from moment_calculus.numerics.arrays import outer
from moment_calculus.numerics.normal.bivariate import cdf, pdf, step_covariance
from moment_calculus.numerics.normal.square import square_excess
from moment_calculus.numerics.special import erf, erfc

STEP = StepMixture((1.0,), (1.0,))


def _threshold(mean: Array, variance: Array) -> Array:
    """Return h = μ / √(1 + v)."""
    return mean / (1 + variance) ** 0.5


def _moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    threshold = _threshold(mean, variance)
    return cdf(threshold), square_excess(threshold, variance / (1 + variance))


@dataclass(frozen=True)
class NormalCdf(Activation):
    """The normal distribution function Φ(x): a step seen through standard normal noise.

    Its mean for x ~ N(μ, v) is Φ(h), h = μ/√(1+v); pairs are bivariate normal probabilities.
    """

    name = "ndtr"
    bounds = (0.0, 1.0)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return cdf(x)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        return in_double(_moments)(mean, variance)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative, the density of N(0, 1 + v) at μ."""
        return pdf(_threshold(mean, variance)) / (1 + variance) ** 0.5

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients of a step seen through noise."""
        return STEP.hermite(mean, variance, order)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair."""
        scale = (1 + variance) ** 0.5
        rho = covariance / outer(scale, scale)
        return over_pairs(step_covariance, _threshold(mean, variance), rho)


@dataclass(frozen=True)
class Erf(NormalCdf):
    """The error function, 2 Φ(√2 x) − 1."""

    name = "erf"
    bounds = (-1.0, 1.0)
    sign = 1

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return erf(x)

    def _centre(self, mean: Array, variance: Array) -> Array:
        """Return the exact mean, which is the function at μ / √(1 + 2v)."""
        return self(mean / (1 + 2 * variance) ** 0.5)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        spread = super().moments(math.sqrt(2) * mean, 2 * variance)[1]
        return self._centre(mean, variance), 4 * spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return self.sign * math.sqrt(8) * super().gain(math.sqrt(2) * mean, 2 * variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients."""
        terms = super().hermite(math.sqrt(2) * mean, 2 * variance, order)
        return [2 * self.sign * term for term in terms]

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair."""
        return 4 * super().pair_covariance(math.sqrt(2) * mean, 2 * variance, 2 * covariance)


@dataclass(frozen=True)
class Erfc(Erf):
    """The function 1 − erf x, relatively accurate where it is small."""

    name = "erfc"
    bounds = (0.0, 2.0)
    sign = -1

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return erfc(x)
