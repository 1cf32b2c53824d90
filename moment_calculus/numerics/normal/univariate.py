"""Compute the standard normal density, cdf and tail moments, relatively accurate in the tails."""

from __future__ import annotations

import functools
import math
from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.polynomials import polynomial
from moment_calculus.numerics.special import elementwise, namespace, ndtr

LIMIT = 40.0  # beyond it every tail is 0 in float64: thresholds are clipped there


def pdf(x: Array) -> Array:
    """Return the standard normal density."""
    return namespace(x).exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def cdf(x: Array) -> Array:
    """Return the standard normal distribution function."""
    return ndtr(x)


def upper_tail(t: Array) -> Array:
    """Return Φ(−t) for t ≥ 0, as each framework runs it fastest; without own derivatives."""
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    t = namespace(t).clip(t, max=LIMIT)
    return upper_tail_from_density(t, pdf(t))


def upper_tail_from_density(t: Array, density: Array) -> Array:
    """Return Φ(−t) for 0 ≤ t ≤ LIMIT, where the density φ(t) is known already."""
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    reach = t + _tail_quotient(t)
    return density * reach / (1 + t * reach)  # the quotient comes last: XLA computes it once


def is_single_precision(x: Array) -> bool:
    """Return whether an array has float32 precision or less: short expansions suffice then."""
    return namespace(x).finfo(x.dtype).eps > 1e-10


# ---------------------------------------------------------------------------------------------
# Tail moments T0 = Φ(−t), T1 = φ − tΦ(−t), T2 = (1 + t²)Φ(−t) − tφ, without cancellation.
# With a fit of K = T2/T1 the recursions T0 = T2 + t T1 and φ = T1 + t T0 have positive
# terms only: T1 = φ/(1 + t (t + K)).


def raw_tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """Return what :func:`tail_moments` does, without derivatives of its own."""
    return tails_and_density(t)[:3]


def tails_and_density(t: Array) -> tuple[Array, Array, Array, Array]:
    """Return T0, T1, T2 of :func:`tail_moments` and the density, by one exponential."""
    t = namespace(t).clip(t, max=LIMIT)
    quotient, density = _tail_quotient(t), pdf(t)
    reach = t + quotient
    first = density / (1 + t * reach)
    return reach * first, first, quotient * first, density


# Relative errors of K: 3e-7 in single, 1e-13 in double precision.
_DEGREES = {True: 10, False: 22}
_CENTRE = 4.0
_NEAR, _FAR = 1 / _CENTRE, 1 / (LIMIT + _CENTRE)


@functools.cache
def _tail_polynomial(degree: int) -> tuple[float, ...]:
    """Return coefficients of (t + c) K in powers of u, which is 1/(t + c) mapped to [−1, 1]."""
    points, weights = np.polynomial.legendre.leggauss(400)

    def target(u: np.ndarray) -> Any:
        shifted = 2 / (_NEAR + _FAR + (_NEAR - _FAR) * u)
        t = np.maximum(shifted - _CENTRE, 0.0)[:, None]
        step = (40 / (t + (t * t + 80) ** 0.5)) * (1 + points)  # t s + s²/2 ≤ 40
        mass = weights * step * np.exp(-step * (t + step / 2))
        return shifted * (mass * step).sum(axis=-1) / mass.sum(axis=-1)

    fit: np.ndarray = np.polynomial.chebyshev.chebinterpolate(target, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(fit).tolist())


def _tail_quotient(t: Array) -> Array:
    """Return K = T2 / T1 for 0 ≤ t ≤ LIMIT."""
    inverse = 1 / (t + _CENTRE)
    u = inverse * (2 / (_NEAR - _FAR)) - (_NEAR + _FAR) / (_NEAR - _FAR)
    return polynomial(_tail_polynomial(_DEGREES[is_single_precision(t)]), u) * inverse


def _tail_slopes(t: Array) -> Any:
    zeroth, first, _ = tail_moments(t)
    return (-pdf(t),), (-zeroth,), (-2 * first,)


_tail_moments = elementwise(raw_tail_moments, _tail_slopes)


def tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """Return T_k(t) = E[(z − t)₊ᵏ], k = 0, 1, 2, of a standard normal z, for t ≥ 0."""
    return _tail_moments(t)
