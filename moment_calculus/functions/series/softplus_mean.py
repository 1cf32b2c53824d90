"""E softplus(x) of a Gaussian, with derivatives: expected log-likelihoods of logistic models.

The logistic function S is nearly a mixture Σ p Φ(sx), and E Φ(sx) = Φ(μ/t) with t² = 1/s²
+ v. For −μ > v, S(x) = eˣ S(−x) and softplus(x) = eˣ (S(−x) + r(x)) keep the left tail
relatively accurate: eˣ moves the mean to μ + v, and the bump r is a mixture of normal
densities and their slopes. The other half line follows from softplus(x) = x +
softplus(−x).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from moment_calculus.numerics.arrays import Array, log1p, namespace, safe_scale
from moment_calculus.numerics.derivatives import elementwise
from moment_calculus.numerics.execution import if_cheap, in_cpu_chunks, sum_over_rows, where_cheap
from moment_calculus.numerics.normal import is_single_precision, upper_tail
from moment_calculus.numerics.quadrature import gauss_hermite

ROUNDS = 100  # iterations of the reweighting
PIECE = 1 << 17  # bytes of elements computed together: their terms stay in a processor's cache
JAX_PIECE = 1 << 13  # the same for JAX, in elements
# In single precision Gauss–Hermite is cheaper for a variance up to NARROW: error 6e-7.
NARROW, PAIRS = 0.5, 3
# A power series in the variance is cheaper still, up to these variances in single and double
# precision: absolute errors 1.2e-7 and 2e-11.
TINY = 0.05, 0.005


@functools.cache
def _mixture(single: bool) -> np.ndarray:
    """Return 1/s², p, and the weights of densities and slopes in r: [terms, 4]."""
    # largest errors: S 1e-7 and r 7e-7 in single, 4e-11 and 4e-10 in double precision
    count, steepest, ratio = (7, 1.3092, 1.3157) if single else (12, 1.6603, 1.2150)
    slopes = steepest * ratio ** -np.arange(float(count))
    x = np.linspace(-40.0, 0.0, 1001)[:, None]
    last = scipy.special.ndtr(slopes[-1] * x)
    shares = _minimax_coefficients(
        scipy.special.ndtr(slopes[:-1] * x) - last, (scipy.special.expit(x) - last)[:, 0]
    )
    shares = np.append(shares, 1 - shares.sum())
    x = np.linspace(-40.0, 40.0, 2001)[:, None]
    bump = np.where(x < -30, 0.0, np.exp(-x) * np.logaddexp(0, x) - scipy.special.expit(-x))
    density = slopes * np.exp(-0.5 * (slopes * x) ** 2) / math.sqrt(2 * math.pi)
    rest = _minimax_coefficients(
        np.concatenate([density, slopes * x * density], axis=1), bump[:, 0]
    )
    parts = (slopes**-2.0, shares, rest[:count], rest[count:] / slopes)
    return np.stack(parts, axis=-1)


def _minimax_coefficients(basis: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return near-minimax coefficients [terms] (Lawson's reweighted least squares)."""
    weights: np.ndarray = np.ones_like(target)
    best, best_coefficients = math.inf, basis[0]
    for _ in range(ROUNDS):
        root = weights**0.5
        coefficients = np.linalg.lstsq(basis * root[:, None], target * root, rcond=1e-15)[0]
        errors = np.abs(basis @ coefficients - target)
        if errors.max() < best:
            best, best_coefficients = errors.max(), coefficients
        weights = weights * (errors / errors.max() + 1e-6) ** 0.5
        weights = weights / weights.sum()
    return best_coefficients


@functools.cache
def _hermite() -> tuple[np.ndarray, float]:
    """Return positive Gauss–Hermite nodes and weights [pairs, 2], and the weight of 0."""
    points, weights = gauss_hermite(2 * PAIRS + 1)
    return np.stack([points, weights], axis=-1)[PAIRS + 1 :], float(weights[PAIRS])


def _nonpositive_narrow(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return :func:`_nonpositive` for a small variance, by Gauss–Hermite."""
    xp = namespace(mean)
    pairs, middle = _hermite()
    growth = xp.exp(mean)
    square, centre = growth * growth, growth / (1 + growth)
    scale = safe_scale(xp.clip(variance, max=NARROW))  # larger ones are not for this rule

    def term(point: Any, weight: Any) -> tuple[Array, ...]:  # of a pair of nodes ±t
        # (1 + e^{μ+t})(1 + e^{μ−t}) − 1, and its derivatives by μ
        excess = growth * (2 * xp.cosh(point * scale) + growth)
        slope, inverse = excess + square, 1 / (1 + excess)
        share = slope * inverse
        bend = (slope + 2 * square) * inverse - share * share
        return weight * log1p(excess), weight * share, weight * bend

    logarithm, gain, bend = sum_over_rows(term, pairs, mean)
    return (
        logarithm + middle * log1p(growth),
        gain + middle * centre,
        bend + middle * centre * (1 - centre),
    )


def _nonpositive_series(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return :func:`_nonpositive` for a tiny variance: Σ (v/2)ᵏ/k! f⁽²ᵏ⁾(μ), up to k = 3."""
    growth = namespace(mean).exp(mean)
    inverse = 1 / (1 + growth)
    logistic = growth * inverse
    # the derivatives are polynomials of u = S (1 − S), those of odd order times 1 − 2 S
    u, half = logistic * inverse, 0.5 * variance
    second, third = 0.5 * half, half / 3
    by_u = half * u
    fourth, sixth = 1 - 6 * u, 1 - u * (30 - 120 * u)
    eighth = 1 - u * (126 - u * (1680 - 5040 * u))
    odd = 1 + second * (1 - 12 * u + third * (1 - u * (60 - 360 * u)))
    return (
        log1p(growth) + by_u * (1 + second * (fourth + third * sixth)),
        logistic + by_u * (1 - 2 * logistic) * odd,
        u + by_u * (fourth + second * (sixth + third * eighth)),
    )


def _statistics(
    mean: Array, variance: Array, left: Callable[[Array, Array], tuple] | None = None
) -> tuple[Array, ...]:
    """Return E softplus(x) for μ ≤ 0, else E softplus(−x), and its derivatives by μ and v."""
    xp = namespace(mean)
    value, share, slope = (left or _nonpositive)(-abs(mean), variance)
    # 0 − μ is +0 where μ = 0: the derivative there is that of μ ≤ 0
    return value, xp.copysign(share, 0 - mean), slope * 0.5


def _nonpositive(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return E softplus(x), E S(x) and E S′(x) for μ ≤ 0."""
    xp = namespace(mean)
    shifted = mean + variance
    # products with zeros and ones instead of where, which is slow in torch
    tail = _indicator(shifted < 0, mean)
    centre, near = mean + tail * variance, 1 - tail

    def term(width: Any, share: Any, bump: Any, slope_weight: Any) -> tuple[Array, ...]:
        inverse = 1 / xp.sqrt(width + variance)
        threshold = centre * inverse
        density = xp.exp(threshold * threshold * -0.5) * (inverse / math.sqrt(2 * math.pi))
        steep = share * density
        return (
            share * upper_tail(-threshold),
            steep,
            width * steep,
            bump * density,
            slope_weight * density * inverse * inverse,
        )

    below, steep, wide, bump, slope_weight = sum_over_rows(
        term, _mixture(is_single_precision(mean)), mean
    )
    growth = tail * xp.exp(tail * (shifted - 0.5 * variance))
    above = growth * (1 - below)
    level = near * (wide + variance * steep + mean * below)
    return (
        level + above + growth * (bump + centre * slope_weight),
        near * below + above,
        tail * above + (near - growth) * steep,
    )


def _indicator(condition: Array, like: Array) -> Array:
    return namespace(like).astype(condition, like.dtype)


def _value(mean: Array, variance: Array) -> Array:
    return _statistics(mean, variance)[0]


def _slopes_and_bends(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return the derivatives in :func:`_statistics`, and theirs by μ and v."""
    mirrored = 1 - 2 * _indicator(mean > 0, mean)
    share, slope, widening, bend, flattening = _nonpositive_bends(mean * mirrored, variance)
    return (
        mirrored * share,
        slope * 0.5,
        slope,
        mirrored * widening,
        mirrored * bend * 0.5,
        flattening * 0.5,
    )


def _nonpositive_bends(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return E S and E S′ for μ ≤ 0, ∂/∂v of the first, and ∂/∂μ and ∂/∂v of the second."""
    xp = namespace(mean)
    tail = _indicator(mean + variance < 0, mean)
    centre, near = mean + tail * variance, 1 - tail

    def term(width: Any, share: Any, bump: Any, slope_weight: Any) -> tuple[Array, ...]:
        inverse = 1 / xp.sqrt(width + variance)
        threshold = centre * inverse
        square = inverse * inverse
        density = xp.exp(threshold * threshold * -0.5) * (inverse / math.sqrt(2 * math.pi))
        steep = share * density
        return share * upper_tail(-threshold), steep, steep * square, steep * (square * square)

    below, steep, second, fourth = sum_over_rows(term, _mixture(is_single_precision(mean)), mean)
    lifted = tail * steep - 0.5 * centre * second  # ∂below/∂v
    steeper = (0.5 * centre * fourth - tail * second) * centre - 0.5 * second  # ∂steep/∂v
    growth = tail * xp.exp(tail * (mean + 0.5 * variance))
    above, rest = growth * (1 - below), near - growth
    slope = tail * above + rest * steep
    return (
        near * below + above,
        slope,
        rest * lifted + 0.5 * above,
        tail * above - 2 * growth * steep - rest * centre * second,
        tail * 0.5 * above - growth * (lifted + 0.5 * steep) + rest * steeper,
    )


def _slopes(mean: Array, variance: Array) -> tuple[Array, Array]:
    return _statistics(mean, variance)[1:]


def _bends(mean: Array, variance: Array) -> Any:
    by_mean, by_both, *last = _slopes_and_bends(mean, variance)[2:]
    return (by_mean, by_both), tuple(last)


_differentiable_slopes = elementwise(
    _slopes, _bends, values_and_partials=in_cpu_chunks(_slopes_and_bends, JAX_PIECE), piece=PIECE
)


def _partials(mean: Array, variance: Array) -> Any:
    return (_differentiable_slopes(mean, variance),)


def _nonpositive_cheapest(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    single = is_single_precision(mean)
    general, limit = (_narrow_or_wide, TINY[0]) if single else (_nonpositive, TINY[1])
    if 0 in mean.shape:  # nothing is the largest
        return general(mean, variance)
    largest = namespace(variance).max(variance)  # cheaper than to compare all
    return if_cheap(largest <= limit, _nonpositive_series, general, mean, variance)


def _narrow_or_wide(mean: Array, variance: Array) -> tuple[Array, ...]:
    return where_cheap(variance <= NARROW, _nonpositive_narrow, _nonpositive, mean, variance)


def _values_and_partials(mean: Array, variance: Array) -> tuple[Array, ...]:
    return _statistics(mean, variance, _nonpositive_cheapest)


_expected = elementwise(
    _value,
    _partials,
    values_and_partials=in_cpu_chunks(_values_and_partials, JAX_PIECE),
    piece=PIECE,
)


def smaller_softplus(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return the smaller of E softplus(±x), and 1 where μ > 0; the other is |μ| larger."""
    return _expected(mean, variance), _indicator(mean > 0, mean)


def expected_softplus(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return E softplus(x) and E softplus(−x), each relatively accurate where it is small."""
    # Measured relative errors for σ up to 3 and |μ/σ| ≤ 8: 1e-8 in double and 5e-5 in
    # single precision, of the derivatives 1e-9 and 4e-6; for σ > 3, 8e-4 and 2e-2 in the
    # left tail. Absolute errors anywhere, also of the derivatives: 3e-10 and 5e-7.
    # Source: Monahan & Stefanski (1992), for the mixture.
    smaller, right = smaller_softplus(mean, variance)
    return mean * right + smaller, mean * (right - 1) + smaller
