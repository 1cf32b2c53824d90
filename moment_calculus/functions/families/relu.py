"""Piecewise linear activations: ReLU, leaky ReLU and the Heaviside step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from array_api_compat import is_jax_array

from moment_calculus.functions.base import (
    Activation,
    Array,
    correlation,
    normal_hermite,
    over_pairs,
)
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    namespace,
    off_diagonal_mask,
    outer,
    safe_scale,
    transpose,
)
from moment_calculus.numerics.derivatives import elementwise, with_checkpoint
from moment_calculus.numerics.execution import divided, preceded
from moment_calculus.numerics.normal import (
    LIMIT,
    cdf,
    conditional_threshold,
    pdf,
    raw_tail_moments,
    rectifier_covariance,
    step_covariance,
    tail_moments,
    tails_and_density,
    upper_tail,
)

# ----------------------------------------------------------------------------------------
# Approximations of pairs by deterministic variational inference [DVI], corrected: the
# paper's Table 1 prints two signs and a prefactor wrong. These forms agree with the exact
# covariances (1e-4 for |ρ| < 0.6, 1e-2 at |ρ| = 0.99).


SERIES_BELOW = 0.2


def _arcsine_excess(rho: Array) -> Array:
    """Return (asin ρ − ρ)/ρ³, which is even and regular at ρ = 0."""
    xp = namespace(rho)
    small = xp.abs(rho) < SERIES_BELOW
    square = xp.where(small, rho * rho, xp.zeros_like(rho))
    series = 0.0
    for coefficient in (10395 / 599040, 945 / 42240, 105 / 3456, 15 / 336, 3 / 40, 1 / 6):
        series = series * square + coefficient
    large = xp.where(small, xp.ones_like(rho) / 2, rho)
    return xp.where(small, series, (xp.asin(large) - large) / large**3)


def _prepared(a: Array, b: Array, rho: Array) -> tuple[Array, ...]:
    """Return the clipped arguments, r = √(1 − ρ²), (asin ρ − ρ)/ρ³ and asin(ρ)/ρ."""
    xp = namespace(rho)
    rho = xp.clip(rho, min=-1 + 1e-6, max=1 - 1e-6)
    a, b = (xp.clip(threshold, min=-LIMIT, max=LIMIT) for threshold in (a, b))
    excess = _arcsine_excess(rho)
    return a, b, rho, ((1 - rho) * (1 + rho)) ** 0.5, excess, 1 + rho * rho * excess


@with_checkpoint
def dvi_rectifier(a: Array, b: Array, rho: Array) -> Array:
    """Return approximately Cov((x + a)₊, (y + b)₊) of standard normals with correlation ρ.

    Source: [DVI] Table 1, with g_r = asin ρ − ρ/(1 + r) and prefactor ρ g_r/2π.
    """
    xp = namespace(rho)
    a, b, rho, root, excess, arcsine = _prepared(a, b, rho)
    quotient = arcsine - 1 / (1 + root)
    exponent = (a * a + b * b) / (2 * quotient * (1 + root)) - rho * excess / quotient * a * b
    return rho * (cdf(a) * cdf(b) + rho * quotient / (2 * math.pi) * xp.exp(-exponent))


@with_checkpoint
def dvi_step(a: Array, b: Array, rho: Array) -> Array:
    """Return approximately Cov(1{x > −a}, 1{y > −b}) of standard normals with correlation ρ.

    Source: [DVI] Table 1 for the Heaviside step, with the cross term odd in ρ.
    """
    xp = namespace(rho)
    a, b, rho, root, _, arcsine = _prepared(a, b, rho)
    crossed = a * b * rho / (arcsine * root * (1 + root))
    exponent = (a * a + b * b) / (2 * arcsine * root) - crossed
    return rho * arcsine / (2 * math.pi) * xp.exp(-exponent)


# ----------------------------------------------------------------------------------------
# The activations


def rectified(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return mean and variance of max(x, 0), by tail moments."""
    scale, ratio, tails = _standardised(mean, variance, raw_tail_moments)
    return _rectified(mean, variance, scale, ratio, tails)


def rectified_slopes(mean: Array, variance: Array) -> Any:
    """Return the derivatives of both moments of max(x, 0) by mean and variance."""
    scale, ratio, tails = _standardised(mean, variance, tail_moments)
    slopes = _slopes(variance, scale, ratio, (*tails, pdf(ratio)))
    return slopes[:2], slopes[2:]


def _standardised(mean: Array, variance: Array, tails: Callable) -> tuple[Array, Array, Any]:
    """Return σ, μ/σ and the tail moments at |μ/σ|, computed by ``tails``."""
    xp, scale = namespace(mean), safe_scale(variance)
    ratio = xp.clip(mean / scale, min=-LIMIT, max=LIMIT)
    return scale, ratio, tails(xp.abs(ratio))


def _rectified(mean: Array, variance: Array, scale: Array, ratio: Array, tails: Any) -> Any:
    xp = namespace(mean)
    _, first, second, *_ = tails
    share = xp.where(ratio > 0, 1 - second - 2 * ratio * first, second) - first * first
    return xp.clip(mean, min=0.0) + scale * first, variance * share


def _slopes(variance: Array, scale: Array, ratio: Array, tails: Any) -> tuple[Array, ...]:
    xp, above, twice = namespace(ratio), ratio > 0, 2 * scale
    beyond, first, _, density = tails
    within = 1 - beyond
    reach, rest = xp.where(above, within, beyond), xp.where(above, beyond, within)
    unit = first + xp.clip(ratio, min=0.0)  # the mean over σ
    by_scale = xp.where(variance > TINY_VARIANCE, density / twice, xp.zeros_like(scale))
    return reach, by_scale, twice * unit * rest, reach - unit * density


def rectified_values_and_partials(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return both moments of max(x, 0), and their derivatives by mean and variance."""
    scale, ratio, tails = _standardised(mean, variance, tails_and_density)
    moments = _rectified(mean, variance, scale, ratio, tails)
    return *moments, *_slopes(variance, scale, ratio, tails)


_relu_moments = elementwise(
    rectified, rectified_slopes, values_and_partials=rectified_values_and_partials
)


def _threshold(mean: Array, variance: Array) -> Array:
    return mean / safe_scale(variance)


def _normal_share(threshold: Array) -> Array:
    xp, beyond = namespace(threshold), upper_tail(namespace(threshold).abs(threshold))
    return xp.where(threshold > 0, 1 - beyond, beyond)


_jax_share = elementwise(_normal_share, lambda threshold: ((pdf(threshold),),))


def _share_above(threshold: Array) -> Array:
    """Return Φ; in JAX by a quotient, which XLA does not compute anew for every use."""
    return _jax_share(threshold) if is_jax_array(threshold) else cdf(threshold)


def _as_sides(feature: Array) -> tuple[Array, Array]:
    """Return [..., d] as rows and as columns of pairs."""
    return feature[..., :, None], feature[..., None, :]


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """The function max(x, αx) for a slope α < 1; every formula holds for any α.

    Source: [FUP] eqs. 36 and 38; its summary table misprints the variance.
    """

    negative_slope: Any = 0.01  # α, a number or an array
    name = "leaky_relu"

    @property
    def appell(self) -> bool:  # type: ignore[override]
        """Return whether the slope is a number."""
        return isinstance(self.negative_slope, int | float)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return namespace(x).where(x > 0, x, self.negative_slope * x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the inverse of the upper branch, and of a lower one that is not flat."""
        low = self.negative_slope
        flat = isinstance(low, int | float) and low == 0
        return ((level, 1.0),) if flat else ((level, 1.0), (level / low, 1 / abs(low)))

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        low, step = self.negative_slope, 1 - self.negative_slope
        first, second = _relu_moments(mean, variance)
        share = low * low + 2 * low * step * cdf(_threshold(mean, variance))
        total = variance * share + step * step * second
        return low * mean + step * first, namespace(mean).clip(total, min=0.0)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        low = self.negative_slope
        return low + (1 - low) * _share_above(_threshold(mean, variance))

    def hermite(self, mean: Array, variance: Array, order: int) -> Sequence[Array]:
        """Return g_1 = σ E[f′] and g_n = (1 − α) σ (−1)ⁿ He_{n−2}(a) φ(a) / √n! with a = μ/σ."""
        scale, threshold = safe_scale(variance), _threshold(mean, variance)
        jump = (1 - self.negative_slope) * scale * pdf(threshold)
        numbers = [(-1) ** n * math.sqrt(n * (n - 1)) for n in range(2, order + 1)]
        curved = divided(normal_hermite(threshold, jump, order - 1), numbers)
        return preceded(scale * self.gain(mean, variance), curved)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair."""
        return self._pairs(rectifier_covariance, mean, variance, covariance)

    def pair_partials(self, mean: Array, variance: Array, covariance: Array) -> Any:
        """Return Cov(f′_i, f_j), Cov(f″_i, f_j)/2 and E[f′_i f′_j] by Price's theorem."""
        scale, threshold = safe_scale(variance), _threshold(mean, variance)
        rho = correlation(variance, covariance)
        rho = namespace(rho).where(off_diagonal_mask(mean), rho, 0 * rho)
        both = over_pairs(step_covariance, threshold, rho)
        a = namespace(mean).clip(threshold, min=-LIMIT, max=LIMIT)
        (a, b), (reach_a, reach_b) = _as_sides(a), _as_sides(_share_above(a))
        cond_threshold = conditional_threshold(b, a, rho)
        share, width = _share_above(cond_threshold), namespace(rho).sqrt((1 - rho) * (1 + rho))
        rise = pdf(b) * (transpose(share) - reach_a) + rho * pdf(a) * share
        bend = width * (pdf(cond_threshold) + cond_threshold * share) - pdf(b) - b * reach_b
        own, other = _as_sides(scale)
        low, step = self.negative_slope, 1 - self.negative_slope
        linear, square = low * step, step * step
        density = pdf(a) / own  # of x at zero
        return (
            square * other * (b * both + rise) + linear * covariance * density,
            density / 2 * (square * other * bend - linear * covariance * a / own),
            square * (reach_a * reach_b + both) + low * low + linear * (reach_a + reach_b),
        )

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the approximate covariance of every pair by [DVI]."""
        return self._pairs(dvi_rectifier, mean, variance, covariance)

    def _pairs(self, rectifier: Any, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of αx + (1 − α)x₊, given the one of standardised rectifiers."""
        low, step = self.negative_slope, 1 - self.negative_slope
        scale, threshold = safe_scale(variance), _threshold(mean, variance)
        shares = over_pairs(rectifier, threshold, correlation(variance, covariance))
        curved = step * step * outer(scale, scale) * shares
        if low == 0:
            return curved
        reach = cdf(threshold)
        crossed = reach[..., :, None] + reach[..., None, :]
        return curved + covariance * (low * low + low * step * crossed)


@dataclass(frozen=True)
class ReLU(LeakyReLU):
    """The function max(x, 0).

    Source: [DVI] appendix A, [FUP] appendix C.5.
    """

    negative_slope: Any = 0.0
    name = "relu"
    bounds = (0.0, math.inf)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return namespace(x).where(x > 0, x, namespace(x).zeros_like(x))

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        return _relu_moments(mean, variance)


@dataclass(frozen=True)
class Heaviside(Activation):
    """The step 1{x > 0}.

    Source: [FUP] section 3; the pairs are bivariate normal probabilities.
    """

    name = "heaviside"
    bounds = (0.0, 1.0)
    appell = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        xp = namespace(x)
        return xp.where(x > 0, xp.ones_like(x), xp.zeros_like(x))

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        xp = namespace(mean)
        threshold = _threshold(mean, variance)
        reach, random = cdf(threshold), variance > 0
        spread = xp.where(random, reach * cdf(-threshold), xp.zeros_like(mean))
        return xp.where(random, reach, self(mean)), spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative, the density of x at 0."""
        return pdf(_threshold(mean, variance)) / safe_scale(variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return g_n = (−1)ⁿ⁻¹ He_{n−1}(a) φ(a) / √n! with a = μ/σ."""
        threshold = _threshold(mean, variance)
        terms = normal_hermite(threshold, pdf(threshold), order)
        return [(-1) ** (n - 1) * term / math.sqrt(n) for n, term in enumerate(terms, start=1)]

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair."""
        threshold = _threshold(mean, variance)
        return over_pairs(step_covariance, threshold, correlation(variance, covariance))

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the approximate covariance of every pair by [DVI]."""
        threshold = _threshold(mean, variance)
        return over_pairs(dvi_step, threshold, correlation(variance, covariance))
