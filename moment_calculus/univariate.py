"""The normal distribution in one dimension, relatively accurate in the tails."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.arrays import Array
from moment_calculus.special import elementwise, namespace, ndtr

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


def is_single(x: Array) -> bool:
    """Whether an array has float32 precision or less, for which shorter expansions do.

    Args:
        x: a floating-point array.
    """
    return namespace(x).finfo(x.dtype).eps > 1e-10


# ---------------------------------------------------------------------------------------------
# Tail moments


def tail_moment_values(t: Array) -> tuple[Array, Array, Array]:
    """T1 and T2 cancel for large t: there T1 = T0 K1, T2 = T0 K1 K2 by a continued fraction."""
    xp = namespace(t)
    t = xp.clip(t, max=LIMIT)
    switch, levels = (2.5, 6) if is_single(t) else (4.0, 12)
    density, beyond = pdf(t), ndtr(-t)
    first, second = _fractions(t, levels)
    far = t > switch
    return (
        beyond,
        xp.where(far, beyond * first, density - t * beyond),
        xp.where(far, beyond * first * second, (1 + t * t) * beyond - t * density),
    )


def _fractions(t: Array, levels: int) -> tuple[Array, Array]:
    """K1 and K2 of K_n = n / (t + K_{n+1}), started from the asymptotic form of K_{levels+1}."""
    square = t * t + 4 * (levels + 1)
    current = ((square - 2 + 2 * t / square**0.5) ** 0.5 - t) / 2
    previous = current
    for level in range(levels, 0, -1):
        current, previous = level / (t + current), current
    return current, previous


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

    Source: T0 = Φ(−t), T1 = φ − tΦ(−t), T2 = (1 + t²)Φ(−t) − tφ; Laplace's continued fraction of
    the Mills ratio gives the quotients.
    """
    return _tail_moments(t)
