"""Mixtures of x gated by steps seen through normal noise: GELU is one, SiLU nearly."""

from __future__ import annotations

from dataclasses import dataclass

from moment_calculus.functions.base import Array
from moment_calculus.functions.pairs.mixture import LOGISTIC, Mixture, StepMixture
from moment_calculus.numerics.normal.bivariate import (
    bivariate_pdf,
    cdf,
    conditional_cdf,
    mixed_covariance,
    pdf,
    rectifier_covariance,
    step_covariance,
)
from moment_calculus.numerics.special import constants, safe_scale


@dataclass(frozen=True)
class GatedMixture(Mixture):
    """The function Σ p x Φ(s x) = Σ p E[x; x > z/s] with standard normal z."""

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return its Hermite coefficients μ c_n + σ (√(n+1) c_{n+1} + √n c_{n−1}), n = 1 … order.

        The c_n are those of Σ p Φ(s x).
        """
        scale = safe_scale(variance)
        gates = StepMixture(self.weights, self.slopes).coefficients(mean, variance, order + 1)
        return [
            mean * gates[n] + scale * ((n + 1) ** 0.5 * gates[n + 1] + n**0.5 * gates[n - 1])
            for n in range(1, order + 1)
        ]

    def features(self, mean: Array, variance: Array) -> tuple[Array, ...]:
        """Return h, σd, 1/d and k = 1/(1 + s²v), on a new trailing axis of mixture terms."""
        threshold, damped = self.terms(mean, variance)
        slopes = constants(self.slopes, mean)
        rest = 1 / (1 + slopes * slopes * variance[..., None])
        return threshold, safe_scale(variance)[..., None] * damped, 1 / damped, rest

    def between(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Return Cov(x 1{u > 0}, y 1{w > 0}) with u = x − z/s and w = y − z′/s′.

        The part of x along u is a rectifier; the rest, of share k, is independent of u.
        No product of means is subtracted: every term is a covariance, or has the factor
        Cov(x, y).
        """
        (a, step, width, rest), (b, steps, widths, other) = first, second
        rho = rho * step * steps
        along, beside = step * step, steps * steps
        shift, shifts = rest * a, other * b
        steps_covary = step_covariance(a, b, rho)
        rectified = (
            along * beside * rectifier_covariance(a, b, rho)
            + along * shifts * mixed_covariance(a, b, rho)
            + beside * shift * mixed_covariance(b, a, rho)
            + shift * shifts * steps_covary
        )
        linear = (
            (rest + other - rest * other) * (cdf(a) * cdf(b) + steps_covary)
            + shift * other * pdf(a) * conditional_cdf(b, a, rho)
            + shifts * rest * pdf(b) * conditional_cdf(a, b, rho)
            + rest * other * rho * bivariate_pdf(a, b, rho)
        )
        return width * widths * (rectified + rho * linear)


GATE = GatedMixture((1.0,), (1.0,))
LOGISTIC_GATE = GatedMixture(LOGISTIC.weights, LOGISTIC.slopes)
