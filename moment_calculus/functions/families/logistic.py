"""The logistic family: sigmoid S and tanh x = 2 S(2x) − 1, relatively accurate in both tails.

σ ≥ ½: on each half line S and its powers are series in e^{−|x|}, integrated in closed
form. σ < ½: Gauss–Hermite in differences from S(μ), so that a small variance does not
cancel.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation, Array, inverse_at
from moment_calculus.functions.pairs.mixtures import LOGISTIC
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    constants,
    erf,
    erfcx,
    expit,
    namespace,
    polynomial,
    safe_scale,
)
from moment_calculus.numerics.derivatives import elementwise_of_statistics
from moment_calculus.numerics.normal import is_single_precision, pdf
from moment_calculus.numerics.quadrature import gauss_hermite

# ----------------------------------------------------------------------------------------
# Expectations of S, its powers and slopes, by series on each half line


@dataclass(frozen=True)
class _Degrees:
    """Degrees of the approximating polynomials for one precision."""

    quotient: int  # of the quotients in e^{−|x|}
    mills: int  # of the Mills ratio


# Relative errors: of the quotients 2e-10 (power 1) to 3e-7 (power 4), of the ratio 1e-9;
# in single precision 4e-8 to 3e-5, and 1e-6
_DEGREES = {False: _Degrees(12, 13), True: _Degrees(9, 8)}

# Expectations of S, S², S′, S″, S S′, (S²)″/2 and S‴, for μ ≤ 0. With z = e^{−|x|} each is
# a quotient of polynomials (numerator, power of 1 + z), first for x < 0, then for x > 0.
_QUOTIENTS = (
    (((0, 1), 1), ((1,), 1)),
    (((0, 0, 1), 2), ((1,), 2)),
    (((0, 1), 2), ((0, 1), 2)),
    (((0, 1, -1), 3), ((0, -1, 1), 3)),
    (((0, 0, 1), 3), ((0, 1), 3)),
    (((0, 0, 2, -1), 4), ((0, -1, 2), 4)),
    (((0, 1, -4, 1), 4), ((0, 1, -4, 1), 4)),
)
MOMENTS, SLOPES = (0, 1, 2, 3, 4, 5), (2, 3, 6)  # rows for the moments, and for the gain


def _series(numerator: tuple[int, ...], power: int, degree: int) -> np.ndarray:
    """Return coefficients of numerator(z) / (1 + z)^power in powers of z, accurate on [0, 1]."""
    fit = np.polynomial.Chebyshev.interpolate(
        lambda z: (1 + z) ** -float(power), degree, domain=[0, 1]
    )
    powers = fit.convert(kind=np.polynomial.Polynomial).coef
    product = np.polynomial.polynomial.polymul(numerator, powers)
    return np.pad(product, (0, degree + 4 - product.size))


@functools.cache
def _coefficients(degree: int) -> np.ndarray:
    """Return the series of every quotient, [7, 2 (degree + 4)]: of x < 0, then of x > 0."""
    rows = [
        np.concatenate([_series(numerator, power, degree) for numerator, power in sides])
        for sides in _QUOTIENTS
    ]
    return np.stack(rows)


def mills(t: Array) -> Array:
    """Return the Mills ratio Φ(−t) / φ(t) for t ≥ 0."""
    return math.sqrt(math.pi / 2) * erfcx(t * math.sqrt(0.5))


_MILLS_CENTRE = 4.0


@functools.cache
def _mills_polynomial(degree: int) -> tuple[float, ...]:
    """Return the coefficients of (1 + t) Φ(−t) / φ(t) in powers of (t − c)/(t + c)."""

    def target(u: Any) -> Any:
        t = _MILLS_CENTRE * (1 + u) / (1 - u)
        return (1 + t) * mills(t)

    fit: np.ndarray = np.polynomial.chebyshev.chebinterpolate(target, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(fit).tolist())


def _quick_mills(t: Array, degree: int) -> Array:
    """Return :func:`mills` by multiplications only: erfcx would take most of the time."""
    u = 1 - 2 * _MILLS_CENTRE / (t + _MILLS_CENTRE)
    return polynomial(_mills_polynomial(degree), u) / (1 + t)


def on_leading_axis(values: np.ndarray, like: Array) -> Array:
    """Return fixed numbers on a new leading axis, to broadcast with an array."""
    return constants(values.reshape(-1, *(1,) * like.ndim), like)


def _half_line_exponentials(mean: Array, scale: Array, degrees: _Degrees) -> Array:
    """Return E[e^{kx}; x < 0], then E[e^{−kx}; x > 0], for μ ≤ 0, k on a new leading axis."""
    xp = namespace(mean)
    steps = on_leading_axis(np.arange(degrees.quotient + 4), mean) * scale
    threshold = mean / scale
    low = threshold + steps
    tails = _quick_mills(xp.concat([xp.abs(low), steps - threshold]), degrees.mills)
    tails = tails * pdf(threshold)
    # for t < 0 by Φ(−t) = 1 − Φ(t), where φ(a)/φ(t) = exp(kμ + k²v/2) is below 1
    whole = xp.exp(xp.clip(steps * (threshold + steps / 2), max=0.0))
    left = xp.where(low < 0, whole - tails[: len(steps)], tails[: len(steps)])
    return xp.concat([left, tails[len(steps) :]])


def half_line_expectations(mean: Array, scale: Array, rows: tuple[int, ...]) -> tuple[Array, ...]:
    """Return the expectations of some of the quotients, for μ ≤ 0 and σ ≥ ½."""
    # Absolute errors below 3e-9, relative ones below 1e-9 for E[S] and 5e-9 for E[S′]
    # (measured for |μ/σ| ≤ 9); in single precision those of its rounding, 5e-6 relative.
    xp = namespace(mean)
    degrees = _DEGREES[is_single_precision(mean)]
    terms = _half_line_exponentials(mean, scale, degrees)
    chosen = _coefficients(degrees.quotient)[list(rows)]
    expectations = xp.tensordot(constants(chosen, mean), terms, axes=1)
    return tuple(expectations[i] for i in range(len(rows)))


# ----------------------------------------------------------------------------------------
# Moments of S


NODES = 16  # Gauss–Hermite: 1e-11 at σ = ½
NARROW = 0.25  # variance below which Gauss–Hermite is used
PIECE = 1 << 13  # bytes of elements computed together: their terms stay in a processor's cache


def _wide_statistics(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Return :func:`_statistics` for σ ≥ ½ and μ ≤ 0."""
    first, square, slope, bend, mixed, curve = half_line_expectations(mean, scale, MOMENTS)
    return (
        first,
        square - first * first,
        slope,
        bend / 2,
        2 * (mixed - first * slope),
        curve - first * bend,
    )


@functools.cache
def _positive_nodes() -> tuple[np.ndarray, np.ndarray]:
    """Return the positive Gauss–Hermite nodes and their weights."""
    points, weights = gauss_hermite(NODES)
    return points[NODES // 2 :], weights[NODES // 2 :]


def _at_nodes(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Return S − S(μ) and S′ at the nodes z, then at −z, for σ < ½ and μ ≤ 0."""
    xp = namespace(mean)
    growth = xp.expm1(scale * on_leading_axis(_positive_nodes()[0], mean))
    centre, rest = expit(mean), expit(-mean)
    # with g = e^t − 1, S(μ + t) − S(μ) = S S(−μ) g / (1 + S g), a difference without
    # cancellation, and S(μ − t) − S(μ) = −S S(−μ) g / (1 + S(−μ) g)
    step, ahead, behind = centre * rest * growth, 1 + centre * growth, 1 + rest * growth
    slope = centre * rest * (1 + growth)
    return step / ahead, slope / (ahead * ahead), -step / behind, slope / (behind * behind)


def _expected(up: Array, down: Array) -> Array:
    """Return the expectation of a function by its values at the nodes z and −z."""
    return namespace(up).sum(on_leading_axis(_positive_nodes()[1], up[0]) * (up + down), axis=0)


def _narrow_statistics(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Return :func:`_statistics` for σ < ½ and μ ≤ 0."""
    centre, rest = expit(mean), expit(-mean)
    up, slope_up, down, slope_down = _at_nodes(mean, scale)
    shift = _expected(up, down)
    bend_up = slope_up * (rest - centre - 2 * up)
    bend_down = slope_down * (rest - centre - 2 * down)
    gain, bend = _expected(slope_up, slope_down), _expected(bend_up, bend_down)
    return (
        centre + shift,
        _expected(up * up, down * down) - shift * shift,
        gain,
        bend / 2,
        2 * (_expected(up * slope_up, down * slope_down) - shift * gain),
        _expected(slope_up**2 + up * bend_up, slope_down**2 + down * bend_down) - shift * bend,
    )


def _narrow_slopes(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Return E[S′], E[S″] and E[S‴] for σ < ½ and μ ≤ 0."""
    twist = expit(-mean) - expit(mean)
    up, slope_up, down, slope_down = _at_nodes(mean, scale)
    bends = slope_up * (twist - 2 * up), slope_down * (twist - 2 * down)  # S″ = S′ (1 − 2S)
    curves = (slope * (1 - 6 * slope) for slope in (slope_up, slope_down))  # S‴ = S′ (1 − 6S′)
    return _expected(slope_up, slope_down), _expected(*bends), _expected(*curves)


def _by_width(narrow_rule: Any, wide_rule: Any, mean: Array, variance: Array) -> Any:
    """Return whether μ > 0, and what the rule for a width gives at −|μ|."""
    xp = namespace(mean)
    narrow = variance < NARROW
    zero = xp.zeros_like(variance)
    # each branch gets only arguments it is made for: the gradient of the other would be
    # infinite
    thin = xp.where(narrow & (variance > TINY_VARIANCE), variance, zero + TINY_VARIANCE) ** 0.5
    thin = xp.where(variance > TINY_VARIANCE, thin, zero)
    thick = safe_scale(xp.where(narrow, zero + NARROW, variance))
    right = mean > 0
    flipped = xp.where(right, -mean, mean)
    pairs = zip(narrow_rule(flipped, thin), wide_rule(flipped, thick), strict=True)
    return right, [xp.where(narrow, small, large) for small, large in pairs]


def _statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return E S and Var S, and their derivatives ∂E/∂μ, ∂E/∂v, ∂Var/∂μ and ∂Var/∂v.

    The derivatives are E[S′], E[S″]/2, 2 Cov(S, S′) and E[S′²] + Cov(S, S″).
    """
    right, parts = _by_width(_narrow_statistics, _wide_statistics, mean, variance)
    one, two, three, four, five, six = parts
    xp, zero = namespace(mean), namespace(mean).zeros_like(one)
    sign = xp.where(right, zero - 1, zero + 1)
    return (
        xp.where(right, 1 - one, one),
        xp.clip(two, min=0.0),
        three,
        sign * four,
        sign * five,
        six,
    )


def _slopes(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return E[S′], and its derivatives E[S″] by μ and E[S‴]/2 by v."""
    wide = functools.partial(half_line_expectations, rows=SLOPES)
    right, (gain, bend, curve) = _by_width(_narrow_slopes, wide, mean, variance)
    return gain, namespace(mean).where(right, -bend, bend), curve / 2


logistic_moments = elementwise_of_statistics(_statistics, 2, piece=PIECE)
logistic_gain = elementwise_of_statistics(_slopes, 1, piece=PIECE)


# ----------------------------------------------------------------------------------------
# The normal mixture: relatively accurate where the result is not small


def _excess(mean: Array, variance: Array) -> Array:
    """Return E[S] − ½, which is odd in μ, relatively accurate at 0."""
    xp = namespace(mean)
    threshold, _ = LOGISTIC.terms(mean, variance)
    wide = xp.sum(constants(LOGISTIC.weights, mean) * erf(threshold * math.sqrt(0.5)), axis=-1) / 2
    narrow = variance < NARROW
    # for σ < ½ the terms of a pair of nodes are added in closed form, cf. _narrow_statistics
    points, weights = (on_leading_axis(values, mean) for values in _positive_nodes())
    thin = xp.where(narrow & (variance > TINY_VARIANCE), variance, xp.zeros_like(variance))
    growth = xp.expm1(xp.where(thin > 0, thin, thin + TINY_VARIANCE) ** 0.5 * points)
    product = expit(mean) * expit(-mean) * growth * growth
    share = xp.sum(weights * (1 + growth) / (1 + growth + product), axis=0)
    return xp.where(narrow, xp.tanh(mean / 2) * share, wide)


def _centred_statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
    return (_excess(mean, variance), *_statistics(mean, variance)[1:])


# E[S] − ½ and Var[S]
centred_moments = elementwise_of_statistics(_centred_statistics, 2, piece=PIECE)


def _hermite(mean: Array, variance: Array, order: int) -> list[Array]:
    """Return Hermite coefficients by the mixture; the first is relatively accurate."""
    first = safe_scale(variance) * logistic_gain(mean, variance)
    return [first, *LOGISTIC.hermite(mean, variance, order)[1:]]


@dataclass(frozen=True)
class Sigmoid(Activation):
    """The logistic function S(x) = 1 / (1 + e^{−x})."""

    # Relative errors (measured for |μ/σ| ≤ 9, σ from 1e-4 to 1e3): mean 1e-9, variance
    # 6e-8, expected derivative 4e-9; in single precision 5e-6, 3e-5 and 5e-6. Hermite
    # coefficients beyond the first have absolute errors of 1e-8.

    name = "sigmoid"
    bounds = (0.0, 1.0)
    open_ended = True
    appell = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return expit(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the logit, and its derivative."""
        return inverse_at(
            level, self.bounds, lambda xp, y: xp.log(y / (1 - y)), lambda xp, y: 1 / (y * (1 - y))
        )

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance."""
        return logistic_moments(mean, variance)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return logistic_gain(mean, variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients by the normal mixture."""
        return _hermite(mean, variance, order)


@dataclass(frozen=True)
class Tanh(Activation):
    """The hyperbolic tangent, 2 S(2x) − 1."""

    name = "tanh"
    bounds = (-1.0, 1.0)
    open_ended = True
    appell = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return namespace(x).tanh(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the inverse hyperbolic tangent, and its derivative."""
        return inverse_at(
            level, self.bounds, lambda xp, y: xp.atanh(y), lambda xp, y: 1 / (1 - y * y)
        )

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance."""
        excess, spread = centred_moments(2 * mean, 4 * variance)
        return 2 * excess, 4 * spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return 4 * logistic_gain(2 * mean, 4 * variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients by the normal mixture."""
        return [2 * term for term in _hermite(2 * mean, 4 * variance, order)]
