"""Expectations of the logistic function S, its powers and slopes, by series on each half line."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.normal.bivariate import is_single_precision, pdf
from moment_calculus.numerics.polynomials import polynomial
from moment_calculus.numerics.special import constants, erfcx, namespace

Array = Any


@dataclass(frozen=True)
class _Degrees:
    """Degrees of the approximating polynomials for one precision."""

    quotient: int  # of the quotients in e^{−|x|}
    mills: int  # of the Mills ratio


# Relative errors: of the quotients 2e-10 (power 1) to 3e-7 (power 4), of the ratio 1e-9;
# in single precision 4e-8 to 3e-5, and 1e-6
_DEGREES = {False: _Degrees(12, 13), True: _Degrees(9, 8)}

# Expectations of S, S², S′, S″, S S′ and (S²)″/2, for μ ≤ 0. With z = e^{−|x|} each is a
# quotient of polynomials (numerator, power of 1 + z), first for x < 0, then for x > 0.
_QUOTIENTS = (
    (((0, 1), 1), ((1,), 1)),
    (((0, 0, 1), 2), ((1,), 2)),
    (((0, 1), 2), ((0, 1), 2)),
    (((0, 1, -1), 3), ((0, -1, 1), 3)),
    (((0, 0, 1), 3), ((0, 1), 3)),
    (((0, 0, 2, -1), 4), ((0, -1, 2), 4)),
)


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
    """Return the series of every quotient, [6, 2 (degree + 4)]: of x < 0, then of x > 0."""
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


def half_line_expectations(mean: Array, scale: Array) -> tuple[Array, ...]:
    """Return E[S], E[S²], E[S′], E[S″], E[S S′] and E[(S²)″]/2, for μ ≤ 0 and σ ≥ ½."""
    # Absolute errors below 3e-9, relative ones below 1e-9 for E[S] and 5e-9 for E[S′]
    # (measured for |μ/σ| ≤ 9); in single precision those of its rounding, 5e-6 relative.
    xp = namespace(mean)
    degrees = _DEGREES[is_single_precision(mean)]
    terms = _half_line_exponentials(mean, scale, degrees)
    expectations = xp.tensordot(constants(_coefficients(degrees.quotient), mean), terms, axes=1)
    return tuple(expectations[i] for i in range(len(_QUOTIENTS)))
