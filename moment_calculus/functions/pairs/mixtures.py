"""Mixtures Σ p k(x; s) with known covariances: of steps, and of x gated by steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

from moment_calculus.functions.base import (
    Array,
    correlation,
    normal_hermite,
    over_pairs,
)
from moment_calculus.numerics.arrays import constants, namespace, safe_scale
from moment_calculus.numerics.normal import (
    bivariate_pdf,
    cdf,
    conditional_cdf,
    mixed_covariance,
    pdf,
    rectifier_covariance,
    step_covariance,
)


@dataclass(frozen=True)
class Mixture(ABC):
    """A function Σ p k(x; s); a subclass provides k and the covariances of pairs."""

    weights: tuple[float, ...]  # p
    slopes: tuple[float, ...]  # s, positive

    def terms(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return h = sμ/t and d = s/t with t² = 1 + s²v, [..., terms]."""
        slopes = constants(self.slopes, mean)
        damped = slopes / (1 + slopes * slopes * variance[..., None]) ** 0.5
        return mean[..., None] * damped, damped

    @abstractmethod
    def features(self, mean: Array, variance: Array) -> tuple[Array, ...]:
        """Return what :meth:`between` needs of x, on a trailing axis of mixture terms."""

    @abstractmethod
    def between(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Return Cov(k(x; s), k(y; s′)) from the features and the correlation."""

    def _pairs(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Return Σ p p′ Cov(k(x; s), k(y; s′))."""
        xp = namespace(rho)
        weights = constants(self.weights, rho)
        total = 0.0
        for i, weight in enumerate(self.weights):
            one = tuple(feature[..., i : i + 1] for feature in first)
            shares = self.between(one, second, rho[..., None])
            total = total + weight * xp.sum(weights * shares, axis=-1)
        return total

    def all_pairs(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariances [..., d, d]; the diagonal is unspecified."""
        xp = namespace(mean)
        features = tuple(xp.moveaxis(feature, -1, 0) for feature in self.features(mean, variance))

        def function(first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
            left, right = (
                tuple(xp.moveaxis(part, 0, -1) for part in parts) for parts in (first, second)
            )
            return self._pairs(left, right, rho)

        return over_pairs(function, features, correlation(variance, covariance))


@dataclass(frozen=True)
class StepMixture(Mixture):
    """The function Σ p Φ(s x) = Σ p P(x > z/s), z normal: steps through noise."""

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return g_n = Σ p (σd)ⁿ (−1)ⁿ⁻¹ He_{n−1}(h) φ(h) / √n!, n = 1 … order."""
        xp = namespace(mean)
        # on a leading axis: sums over a short trailing one are slow under XLA
        axes = (mean.ndim, *range(mean.ndim))
        threshold, damped = (xp.permute_dims(part, axes) for part in self.terms(mean, variance))
        step = safe_scale(variance) * damped
        weights = xp.reshape(constants(self.weights, mean), (-1, *(1,) * mean.ndim))
        density = weights * pdf(threshold)
        total = lambda term: xp.sum(term, axis=0)  # noqa: E731
        sums = normal_hermite(threshold, step * density, order, -step, total)
        return [one / math.sqrt(n) for n, one in enumerate(sums, start=1)]

    def coefficients(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the expectation, then the Hermite coefficients n = 1 … order."""
        threshold, _ = self.terms(mean, variance)
        reach = namespace(mean).sum(constants(self.weights, mean) * cdf(threshold), axis=-1)
        return [reach, *self.hermite(mean, variance, order)]

    def features(self, mean: Array, variance: Array) -> tuple[Array, ...]:
        """Return h and σd."""
        threshold, damped = self.terms(mean, variance)
        return threshold, safe_scale(variance)[..., None] * damped

    def between(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Return Cov(1{x > z/s}, 1{y > z′/s′}), by bivariate normal probabilities."""
        (threshold, step), (other, steps) = first, second
        return step_covariance(threshold, other, rho * step * steps)


# S(x) = Σ p Φ(s x) to 2.1e-9 for all x. Source: Monahan & Stefanski (1992), 8 terms.
LOGISTIC = StepMixture(
    weights=(
        0.003246343272134,
        0.051517477033972,
        0.195077912673858,
        0.315569823632818,
        0.274149576158423,
        0.131076880695470,
        0.027912418727972,
        0.001449567805354,
    ),
    slopes=(
        1.365340806296348,
        1.059523971016916,
        0.830791313765644,
        0.650732166639391,
        0.508135425366489,
        0.396313345166341,
        0.308904252267995,
        0.238212616409306,
    ),
)


# ----------------------------------------------------------------------------------------
# x gated by steps seen through normal noise: GELU is one, SiLU nearly


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
        """Return h, σd, 1/d and k = 1/(1 + s²v), [..., terms]."""
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
