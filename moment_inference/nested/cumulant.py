"""The second cumulant of what a Gaussian leaves out, in closed form by Mehler's series."""

from __future__ import annotations

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.host import ConditionalModel

NUMBERS = 2**23  # most numbers of covariances at once
EXPONENTIAL = 1e-6  # relative deviation of derivatives from those of an exponential


def second_cumulant(model: ConditionalModel, conditional: Conditional) -> np.ndarray:
    """Return ½ Var of log p(x, y | θ) − log q(x) under q, [g].

    At the optimum the terms of order one and two vanish, and it is
    ½ Σ_ij Σ_{n ≥ 3} a_in a_jn C_ijⁿ / n!, a_in = E f_i⁽ⁿ⁾, C the covariances of the predictors. Pairs
    of exponentials (f = −λ e^{rη}: Poisson, Gamma, Weibull) are summed in closed form, others
    up to n = 5.

    Source: ``docs/maths.md``, nested inference.
    """
    derivatives = model.higher(conditional.theta, conditional.predictor, conditional.variance)
    rates = _rates(derivatives)
    points, count = conditional.predictor.shape
    total, width = np.zeros(points), max(1, NUMBERS // max(1, points * count))
    for start in range(0, count, width):
        stop = min(start + width, count)
        covariances = conditional.factors.columns(conditional.design, start, stop)
        total += _block(covariances, derivatives, rates, slice(start, stop))
    return total / 2


def _rates(derivatives: np.ndarray) -> np.ndarray:
    """Return r where f is an exponential of r η and a linear function, and else nan, [g, n]."""
    third, fourth, fifth = np.moveaxis(derivatives, 1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = fourth / third
        is_exponential = np.abs(fifth - rates**2 * third) <= EXPONENTIAL * np.abs(fifth)
    return np.where(is_exponential & np.isfinite(rates), rates, np.nan)


def _block(
    covariances: np.ndarray, derivatives: np.ndarray, rates: np.ndarray, columns: slice
) -> np.ndarray:
    """Return the sum over pairs of all rows and some columns, [g]."""
    third, fourth, fifth = np.moveaxis(derivatives, 1, 0)
    if np.isfinite(rates).all():
        left, right = third / rates**3, (third / rates**3)[:, columns]
        scaled = rates[:, :, None] * covariances * rates[:, None, columns]
        return np.einsum("gn,gnm,gm->g", left, _tail(scaled), right)
    total = np.zeros(len(covariances))
    for order, each in ((3, third), (4, fourth), (5, fifth)):
        power = covariances**order / (6, 24, 120)[order - 3]
        total += np.einsum("gn,gnm,gm->g", each, power, each[:, columns])
    return total


def _tail(x: np.ndarray) -> np.ndarray:
    """Return eˣ − 1 − x − x²/2."""
    series = x**3 / 6 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))
    return np.where(np.abs(x) < 0.05, series, np.expm1(x) - x - x * x / 2)
