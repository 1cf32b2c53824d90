"""Expected derivatives of log likelihoods, those of exponentials to any order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

ORDERS = (3, 4, 5)  # of the derivatives that are known of any likelihood
EXPONENTIAL = 1e-6  # relative deviation of derivatives from those of an exponential
SMALL = 0.1  # largest argument of the tail's series
DEGREE = 9  # of the same


class Sums(NamedTuple):
    """Sums over pairs of predictors (``corrections``)."""

    evidence: np.ndarray  # ½ Σ_ij Σ_n a_in a_jn C_ijⁿ / n!, [g]
    slopes: np.ndarray  # Σ_i Σ_n a_in a_j(n+1) C_ijⁿ / n!, [g, n]
    third: np.ndarray  # Σ_i a_i3 c_i³, [g, d]

    @classmethod
    def zeros(cls, points: int, count: int, size: int) -> Sums:
        """Return sums of no pairs."""
        return cls(np.zeros(points), np.zeros((points, count)), np.zeros((points, size)))


@dataclass(frozen=True, eq=False)
class Derivatives:
    """E f⁽ⁿ⁾ of all log likelihoods f at points, [g, n]; a r³ and so on where f = a e^{rη}."""

    known: tuple[np.ndarray, ...]  # of the orders 3, 4 and 5
    is_exponential: np.ndarray  # at all points, [n]
    rates: np.ndarray  # r of exponentials, 0 of others
    factors: np.ndarray  # E a e^{rη} of exponentials, 0 of others

    @classmethod
    def of(cls, found: np.ndarray) -> Derivatives:
        """Return the derivatives of orders 3 to 5, [g, 3, n]."""
        third, fourth, fifth = np.moveaxis(found, 1, 0)
        is_zero = (found == 0).all(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(is_zero, 0, fourth / third)
            follows = np.abs(fifth - rates**2 * third) <= EXPONENTIAL * np.abs(fifth)
            follows &= (rates != 0) | is_zero
            is_exponential = (follows | np.isnan(fifth)).all(0)
            factors = np.where(is_exponential & ~is_zero, third / rates**3, 0)
        rates = np.where(is_exponential, rates, 0)
        fifth = np.where(is_exponential, rates**2 * third, fifth)
        return cls((third, fourth, fifth), is_exponential, rates, factors)

    def order(self, order: int, points: slice | int = slice(None)) -> np.ndarray:
        """Return E f⁽ⁿ⁾ from the third on; zero from the sixth on if f is no exponential."""
        if order <= ORDERS[-1]:
            return self.known[order - ORDERS[0]][points]
        return self.factors[points] * self.rates[points] ** order


def tail(x: np.ndarray) -> np.ndarray:
    """Replace x by eˣ − 1 − x − x²/2, in place."""
    large = np.abs(x) > SMALL
    far = x[large]
    series = x / math.factorial(DEGREE)
    for degree in range(DEGREE - 1, 2, -1):
        series += 1 / math.factorial(degree)
        series *= x
    series *= x
    x *= series
    x[large] = np.exp(far) - 1 - far - far * far / 2
    return x
