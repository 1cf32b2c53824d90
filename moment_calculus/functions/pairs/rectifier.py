"""Mixtures of rectifiers seen through normal noise: softplus is nearly one."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from moment_calculus.functions.base import Array, normal_hermite
from moment_calculus.functions.pairs.mixture import LOGISTIC, Mixture
from moment_calculus.numerics.normal.bivariate import cdf, pdf, rectifier_covariance
from moment_calculus.numerics.special import constants, namespace, safe_scale


@dataclass(frozen=True)
class RectifierMixture(Mixture):
    """Σ p E[(x − z/s)₊] with standard normal z, the integral of Σ p Φ(s x)."""

    absolute = False

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """σ Σ p Φ(h), then Σ p σ (σd)ⁿ⁻¹ (−1)ⁿ He_{n−2}(h) φ(h) / √n!, n = 2 … order."""
        xp = namespace(mean)
        threshold, damped = self.terms(mean, variance)
        weights, scale = constants(self.weights, mean), safe_scale(variance)
        step = scale[..., None] * damped
        coefficients = [scale * xp.sum(weights * cdf(threshold), axis=-1)]
        power = scale[..., None]
        terms = normal_hermite(threshold, weights * pdf(threshold), order - 1)
        for n, term in enumerate(terms, start=2):
            power = power * step if n == 2 else power * step * -1.0
            coefficients.append(xp.sum(power * term, axis=-1) / math.sqrt(n * (n - 1)))
        return coefficients

    def features(self, mean: Array, variance: Array) -> tuple[Array, ...]:
        """h, σd and 1/d."""
        threshold, damped = self.terms(mean, variance)
        return threshold, safe_scale(variance)[..., None] * damped, 1 / damped

    def between(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Cov((x − z/s)₊, (y − z′/s′)₊)."""
        (threshold, step, width), (other, steps, widths) = first, second
        return width * widths * rectifier_covariance(threshold, other, rho * step * steps)


# Softplus to 2e-9 of its slope.
SOFTPLUS = RectifierMixture(LOGISTIC.weights, LOGISTIC.slopes)


@functools.cache
def softplus_surrogate(single: bool, beta: float = 1.0) -> RectifierMixture:
    """A mixture of few rectifiers near softplus(βx)/β, for the end of its series.

    With the first 32 terms of the series exact, the rest of it is off by less than 3e-10 or 3e-8 of
    the covariance in double precision (five terms), 5e-5 of the deviations in single (four).

    Args:
        single: whether single precision will do.
        beta: β.
    """
    return SOFTPLUS.compressed(4 if single else 5, 4.0).scaled(beta)
