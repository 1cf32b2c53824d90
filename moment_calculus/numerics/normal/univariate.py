"""The normal distribution in one dimension, relatively accurate in the tails."""

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
    """Standard normal density.

    Args:
        x: any array.
    """
    return namespace(x).exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def cdf(x: Array) -> Array:
    """Standard normal distribution function.

    Args:
        x: any array.
    """
    return ndtr(x)


def upper_tail(t: Array) -> Array:
    """Φ(−t) for t ≥ 0, in the form that each framework runs fastest; no derivatives of its own.

    Args:
        t: non-negative array.
    """
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    t = namespace(t).clip(t, max=LIMIT)
    return upper_tail_beside(t, pdf(t))


def upper_tail_beside(t: Array, density: Array) -> Array:
    """The same where the density is known already.

    Args:
        t: between 0 and LIMIT.
        density: φ(t).
    """
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    reach = t + _tail_quotient(t)
    return density * reach / (1 + t * reach)  # a quotient at the end, which XLA computes once


def is_single(x: Array) -> bool:
    """Whether an array has float32 precision or less, for which shorter expansions do.

    Args:
        x: a floating-point array.
    """
    return namespace(x).finfo(x.dtype).eps > 1e-10


# ---------------------------------------------------------------------------------------------
# Tail moments


def tail_moment_values(t: Array) -> tuple[Array, Array, Array]:
    """As :func:`tail_moments`, without derivatives of its own; one exponential serves all three.

    With the quotient K = T2 / T1 the recursions T0 = T2 + t T1 and φ = T1 + t T0 have positive
    terms only: T1 = φ / (1 + t (t + K)).

    Args:
        t: non-negative array.
    """
    return tails_and_density(t)[:3]


def tails_and_density(t: Array) -> tuple[Array, Array, Array, Array]:
    """The same, and the density at t after them.

    Args:
        t: non-negative array.
    """
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
    """(t + c) K in powers of u, which is 1/(t + c) mapped to [−1, 1]."""
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
    """T2 / T1 for 0 ≤ t ≤ LIMIT."""
    inverse = 1 / (t + _CENTRE)
    u = inverse * (2 / (_NEAR - _FAR)) - (_NEAR + _FAR) / (_NEAR - _FAR)
    return polynomial(_tail_polynomial(_DEGREES[is_single(t)]), u) * inverse


def _tail_slopes(t: Array) -> Any:
    zeroth, first, _ = tail_moments(t)
    return (-pdf(t),), (-zeroth,), (-2 * first,)


_tail_moments = elementwise(tail_moment_values, _tail_slopes)


def tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """T_k(t) = E[(z − t)₊ᵏ], k = 0, 1, 2, for standard normal z, without cancellation.

    Args:
        t: non-negative array.

    Returns:
        T0, T1, T2 of the shape of ``t``.

    Source: T0 = Φ(−t), T1 = φ − tΦ(−t), T2 = (1 + t²)Φ(−t) − tφ; a fit of T2/T1.
    """
    return _tail_moments(t)
