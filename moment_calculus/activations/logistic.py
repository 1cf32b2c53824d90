"""The logistic family: sigmoid S and tanh x = 2 S(2x) − 1, relatively accurate in both tails.

σ ≥ ½: on each half line S and its powers are series in e^{−|x|}, integrated in closed form.
σ < ½: Gauss–Hermite in differences from S(μ), so that a small variance does not cancel.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.activations.base import Activation, Array, Surrogate, inverse_at
from moment_calculus.activations.mixture import LOGISTIC, logistic_surrogate
from moment_calculus.normal import cdf, pdf
from moment_calculus.special import (
    TINY_VARIANCE,
    constants,
    elementwise,
    erf,
    erfcx,
    expit,
    namespace,
    safe_scale,
)

NODES = 16  # Gauss–Hermite: 1e-11 at σ = ½
DEGREE = 14  # Chebyshev: 1e-10
NARROW = 0.25  # variance below which Gauss–Hermite serves

# ---------------------------------------------------------------------------------------------
# Expectations of S, S², S′, S″, S S′ and (S²)″/2, for μ ≤ 0. With z = e^{−|x|} each is a quotient
# of polynomials (numerator, power of 1 + z), first for x < 0, then for x > 0.
_QUOTIENTS = (
    (((0, 1), 1), ((1,), 1)),
    (((0, 0, 1), 2), ((1,), 2)),
    (((0, 1), 2), ((0, 1), 2)),
    (((0, 1, -1), 3), ((0, -1, 1), 3)),
    (((0, 0, 1), 3), ((0, 1), 3)),
    (((0, 0, 2, -1), 4), ((0, -1, 2), 4)),
)


def _series(numerator: tuple[int, ...], power: int) -> np.ndarray:
    """Coefficients of numerator(z) / (1 + z)^power in powers of z, accurate on [0, 1]."""
    fit = np.polynomial.Chebyshev.interpolate(
        lambda z: (1 + z) ** -float(power), DEGREE, domain=[0, 1]
    )
    powers = fit.convert(kind=np.polynomial.Polynomial).coef
    product = np.polynomial.polynomial.polymul(numerator, powers)
    return np.pad(product, (0, DEGREE + 4 - product.size))


@functools.cache
def _coefficients() -> np.ndarray:
    """Series of every quotient [2 (DEGREE + 4), 6]: rows of x < 0, then rows of x > 0."""
    columns = [np.concatenate([_series(*left), _series(*right)]) for left, right in _QUOTIENTS]
    return np.stack(columns, axis=-1)


def mills(t: Array) -> Array:
    """Φ(−t) / φ(t).

    Args:
        t: non-negative array.
    """
    return math.sqrt(math.pi / 2) * erfcx(t * math.sqrt(0.5))


def _half_line_exponentials(mean: Array, scale: Array) -> Array:
    """E[e^{kx}; x < 0] and E[e^{−kx}; x > 0], k = 0, 1, …, for μ ≤ 0, on a new trailing axis."""
    xp = namespace(mean)
    steps = constants(np.arange(DEGREE + 4), mean) * scale[..., None]
    threshold = (mean / scale)[..., None]
    low = threshold + steps
    above = low > 0
    exponent = xp.where(above, xp.zeros_like(low), steps * (threshold + steps / 2))
    density = pdf(threshold)
    inner = density * mills(xp.where(above, low, xp.zeros_like(low)))
    left = xp.where(above, inner, xp.exp(exponent) * cdf(-low))
    return xp.concat([left, density * mills(steps - threshold)], axis=-1)


def _wide(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Statistics for σ ≥ ½ and μ ≤ 0, see :func:`_statistics`."""
    expectations = _half_line_exponentials(mean, scale) @ constants(_coefficients(), mean)
    first, square, slope, bend, mixed, curve = (expectations[..., i] for i in range(6))
    return (
        first,
        square - first * first,
        slope,
        bend / 2,
        2 * (mixed - first * slope),
        curve - first * bend,
    )


@functools.cache
def _gauss_hermite() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return points[NODES // 2 :], weights[NODES // 2 :] / weights.sum()


def _narrow(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Statistics for σ < ½ and μ ≤ 0, see :func:`_statistics`; nodes are summed in ± pairs."""
    xp = namespace(mean)
    points, weights = (constants(values, mean) for values in _gauss_hermite())

    def expected(up: Array, down: Array) -> Array:
        return xp.sum(weights * (up + down), axis=-1)

    step = scale[..., None] * points
    centre = mean[..., None]
    up, down = expit(centre + step), expit(centre - step)
    # S(x) − S(μ) = −S(x) S(−μ) (e^{μ−x} − 1), a difference without cancellation
    remainder = expit(-centre)
    rise, fall = -up * remainder * xp.expm1(-step), -down * remainder * xp.expm1(step)
    shift = expected(rise, fall)
    rise, fall = rise - shift[..., None], fall - shift[..., None]
    slope_up, slope_down = up * (1 - up), down * (1 - down)
    bend_up, bend_down = slope_up * (1 - 2 * up), slope_down * (1 - 2 * down)
    return (
        expit(mean) + shift,
        expected(rise * rise, fall * fall),
        expected(slope_up, slope_down),
        expected(bend_up, bend_down) / 2,
        2 * expected(rise * slope_up, fall * slope_down),
        expected(slope_up**2 + rise * bend_up, slope_down**2 + fall * bend_down),
    )


def _statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
    """E[S], Var[S], and the derivatives of each by μ and by v: (∂E/∂μ, ∂E/∂v, ∂Var/∂μ, ∂Var/∂v).

    The derivatives are E[S′], E[S″]/2, 2 Cov(S, S′) and E[S′²] + Cov(S, S″).
    """
    xp = namespace(mean)
    narrow = variance < NARROW
    zero = xp.zeros_like(variance)
    # each branch sees arguments of its own only, so that no gradient of the other is infinite
    thin = xp.where(narrow & (variance > TINY_VARIANCE), variance, zero + TINY_VARIANCE) ** 0.5
    thin = xp.where(variance > TINY_VARIANCE, thin, zero)
    thick = safe_scale(xp.where(narrow, zero + NARROW, variance))
    right = mean > 0
    flipped = xp.where(right, -mean, mean)
    one, two, three, four, five, six = (
        xp.where(narrow, small, large)
        for small, large in zip(_narrow(flipped, thin), _wide(flipped, thick), strict=True)
    )
    sign = xp.where(right, zero - 1, zero + 1)
    return (
        xp.where(right, 1 - one, one),
        xp.clip(two, min=0.0),
        three,
        sign * four,
        sign * five,
        six,
    )


def _moments(mean: Array, variance: Array) -> tuple[Array, Array]:
    return _statistics(mean, variance)[:2]


def _moment_slopes(mean: Array, variance: Array) -> Any:
    _, _, *slopes = _statistics(mean, variance)
    return tuple(slopes[:2]), tuple(slopes[2:])


logistic_moments = elementwise(_moments, _moment_slopes)


# ---------------------------------------------------------------------------------------------
# The normal mixture: relatively accurate where the result is not small


def _excess(mean: Array, variance: Array) -> Array:
    """E[S] − ½, odd in μ and relatively accurate at 0."""
    xp = namespace(mean)
    threshold, _ = LOGISTIC.terms(mean, variance)
    wide = xp.sum(constants(LOGISTIC.weights, mean) * erf(threshold * math.sqrt(0.5)), axis=-1) / 2
    narrow = variance < NARROW
    # for σ < ½ the terms of a pair of nodes are added by tanh a + tanh b = tanh(a + b)(1 + …)
    points, weights = (constants(values, mean) for values in _gauss_hermite())
    step = xp.where(narrow, variance, xp.zeros_like(variance))[..., None] ** 0.5 * points
    up, down = xp.tanh((mean[..., None] + step) / 2), xp.tanh((mean[..., None] - step) / 2)
    thin = xp.tanh(mean) * xp.sum(weights * (1 + up * down), axis=-1) / 2
    return xp.where(narrow, thin, wide)


def _excess_slopes(mean: Array, variance: Array) -> Any:
    return (_moment_slopes(mean, variance)[0],)


logistic_excess = elementwise(_excess, _excess_slopes)


def _hermite(mean: Array, variance: Array, order: int) -> list[Array]:
    """By the mixture; the first is σ E[S′], relatively accurate."""
    first = safe_scale(variance) * _statistics(mean, variance)[2]
    return [first, *LOGISTIC.hermite(mean, variance, order)[1:]]


@dataclass(frozen=True)
class Sigmoid(Activation):
    """The logistic function S(x) = 1 / (1 + e^{−x}).

    Moments and expected derivative are relatively accurate to 1e-9, Hermite coefficients beyond
    the first absolutely to 1e-8.
    """

    name = "sigmoid"
    bounds = (0.0, 1.0)
    open_ended = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return expit(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """The logit."""
        return inverse_at(
            level, self.bounds, lambda xp, y: xp.log(y / (1 - y)), lambda xp, y: 1 / (y * (1 - y))
        )

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Exact mean and variance."""
        return logistic_moments(mean, variance)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative."""
        return _statistics(mean, variance)[2]

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Hermite coefficients by the normal mixture."""
        return _hermite(mean, variance, order)

    def surrogate(self, single: bool) -> Surrogate:
        """A mixture of few steps."""
        return logistic_surrogate(single)


@dataclass(frozen=True)
class Tanh(Activation):
    """The hyperbolic tangent, 2 S(2x) − 1."""

    name = "tanh"
    bounds = (-1.0, 1.0)
    open_ended = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return namespace(x).tanh(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """The inverse hyperbolic tangent."""
        return inverse_at(
            level, self.bounds, lambda xp, y: xp.atanh(y), lambda xp, y: 1 / (1 - y * y)
        )

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Exact mean and variance."""
        spread = logistic_moments(2 * mean, 4 * variance)[1]
        return 2 * logistic_excess(2 * mean, 4 * variance), 4 * spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative."""
        return 4 * _statistics(2 * mean, 4 * variance)[2]

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Hermite coefficients by the normal mixture."""
        return [2 * term for term in _hermite(2 * mean, 4 * variance, order)]

    def surrogate(self, single: bool) -> Surrogate:
        """A mixture of few steps."""
        return logistic_surrogate(single, 2.0)
