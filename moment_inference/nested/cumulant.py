"""What a Gaussian leaves out, to second order and in closed form, by Mehler's series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.host import ConditionalModel

NUMBERS = 2**22  # most numbers of covariances at once
EXPONENTIAL = 1e-6  # relative deviation of derivatives from those of an exponential


class Corrections(NamedTuple):
    """Corrections of the Gaussians q(x | θ) at points [g]."""

    evidence: np.ndarray  # of log p(y | θ), nats, [g]
    mean: np.ndarray  # shifts of the means, [g, d]
    third: np.ndarray  # third central moments, [g, d]


def corrections(model: ConditionalModel, conditional: Conditional) -> Corrections:
    """Return the second cumulant of log p(x, y | θ) − log q(x) under q, and what it moves.

    At the optimum the Hermite terms of order one and two of that difference R vanish. With log
    likelihoods f_i(η_i), a_in = E f_i⁽ⁿ⁾, C = Cov(η), c = Cov(x, η) and n from 3 on,

    - log p(y | θ) = ELBO + ½ Var R = ELBO + ½ Σ_ij Σ_n a_in a_jn C_ijⁿ / n!,
    - the means move by ½ E[x R²] = Σ_j c_j Σ_i Σ_n a_in a_j(n+1) C_ijⁿ / n!,
    - third central moments are E[x³ R] = Σ_i a_i3 c_i³.

    Pairs of exponentials (f = λ e^{rη} and a linear function: Poisson, Gamma, Weibull) are summed
    in closed form, others up to n = 5. Source: ``docs/maths.md``, nested inference.
    """
    terms = _Terms.of(model.higher(conditional.theta, conditional.predictor, conditional.variance))
    points, count = conditional.predictor.shape
    size = conditional.mean.shape[1]
    evidence = np.zeros(points)
    mean, third = np.zeros_like(conditional.mean), np.zeros_like(conditional.mean)
    width = max(1, NUMBERS // max(1, points * (count + size)))
    for start in range(0, count, width):
        block = slice(start, min(start + width, count))
        right = conditional.design.dense_rows(block.start, block.stop)
        crossed = conditional.factors.solve(right)  # [g, d, block]
        pairs, slopes = terms.sums(conditional.design.times(crossed), block)
        evidence += pairs
        mean += np.einsum("gdb,gb->gd", crossed, slopes)
        third += np.einsum("gdb,gb->gd", crossed * crossed * crossed, terms.third[:, block])
    return Corrections(evidence, mean, third)


@dataclass(frozen=True, eq=False)
class _Terms:
    """The expected derivatives of all likelihoods, [g, n]."""

    third: np.ndarray
    fourth: np.ndarray
    fifth: np.ndarray
    rates: np.ndarray  # r of exponentials; nan of others

    @classmethod
    def of(cls, derivatives: np.ndarray) -> _Terms:
        """Return the terms of derivatives [g, 3, n]."""
        third, fourth, fifth = np.moveaxis(derivatives, 1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = fourth / third
            is_exponential = np.abs(fifth - rates**2 * third) <= EXPONENTIAL * np.abs(fifth)
        return cls(third, fourth, fifth, np.where(is_exponential, rates, np.nan))

    def sums(self, covariances: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        """Return ½ the sum over pairs of all rows and some columns, [g], and its slopes [g, b]."""
        if np.isfinite(self.rates).all():
            return self._closed(covariances, columns)
        square = covariances * covariances
        cube = square * covariances
        parts = (self.third, cube / 6), (self.fourth, square * square / 24)
        sums = [np.einsum("gn,gnb->gb", each, power) for each, power in parts]
        sums.append(np.einsum("gn,gnb->gb", self.fifth, cube * square / 120))
        own = [each[:, columns] for each in (self.third, self.fourth, self.fifth)]
        evidence = sum(each * total for each, total in zip(own, sums, strict=True))
        return evidence.sum(1) / 2, own[1] * sums[0] + own[2] * sums[1]

    def _closed(self, covariances: np.ndarray, columns: slice) -> tuple[np.ndarray, np.ndarray]:
        factors = self.third / self.rates**3
        scaled = self.rates[:, :, None] * covariances * self.rates[:, None, columns]
        sums = factors[:, columns] * np.einsum("gn,gnb->gb", factors, _tail(scaled))
        return sums.sum(1) / 2, self.rates[:, columns] * sums


def _tail(x: np.ndarray) -> np.ndarray:
    """Return eˣ − 1 − x − x²/2."""
    series = x * x * x / 6 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))
    return np.where(np.abs(x) < 0.05, series, np.expm1(x) - x - x * x / 2)
