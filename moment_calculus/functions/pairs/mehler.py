"""Mehler's series of the covariance of two activations, and the pairs it is too short for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, outer
from moment_calculus.numerics.normal.bivariate import is_single
from moment_calculus.numerics.special import TINY_VARIANCE, constants, namespace, stop_gradient

# Truncation that the completed series of sigmoid and tanh lets pass: of a pair, the geometric mean
# of what its two members tolerate, the larger of a number and a share of the variance. Last, the
# relative rounding of the variance.
TOLERANCE = {"double": (5e-9, 5e-9, 0.0), "single": (1e-12, 5e-6, 5e-5)}
# Truncation that is integrated away: a share of the covariance, and one of the deviations.
RESIDUE = {"double": (3e-7, 1e-13), "single": (1e-6, 1e-6)}


def precision(array: Array) -> str:
    """Key of the tables of tolerances.

    Args:
        array: any floating-point array.
    """
    return "single" if is_single(array) else "double"


def series(left: Sequence[Array], right: Sequence[Array], rho: Array, meet: Any) -> Array:
    """The sum of ρⁿ g_n h_n, n ≥ 1, over all coefficients given.

    Args:
        left: Hermite coefficients g_n of the first variables, each [..., d].
        right: those of the second, h_n, each [..., e].
        rho: correlations [..., d, e].
        meet: how the arrays of the two sides meet, such as the outer product.
    """
    total = 0.0
    for first, second in zip(reversed(left), reversed(right), strict=True):
        total = rho * (total + meet(first, second))
    return total


def truth(array: Array) -> bool | None:
    """The value of a Boolean; None if it is traced, and has no value yet.

    Args:
        array: a single Boolean.
    """
    try:
        return bool(array)
    except (RuntimeError, TypeError):  # of torch and of JAX
        return None


def above_diagonal(array: Array) -> Array:
    """The mask [d, d] of the pairs i < j.

    Args:
        array: [..., d].
    """
    return constants(np.triu(np.ones((array.shape[-1],) * 2), 1), array) > 0


def gaps(spread: Array, coefficients: Sequence[Array]) -> Array:
    """Var f − Σ g_n², of which rounding alone is judged by the last terms, which it follows then.

    Args:
        spread: Var f.
        coefficients: g_n.
    """
    rounding = TOLERANCE[precision(spread)][2]
    squares = [stop_gradient(coefficient) ** 2 for coefficient in coefficients]
    gap, ending = spread - sum(squares), sum(squares[-4:])
    xp = namespace(spread)
    gap = xp.where(gap < rounding * spread, xp.minimum(gap, ending), gap)
    return xp.clip(gap, min=0.0)


def beyond_tolerance(
    spread: Array, coefficients: Sequence[Array], rho: Array, *, absolute: bool
) -> Array:
    """Pairs i < j of which the certificate exceeds TOLERANCE [..., d, d]; or one False for all.

    Args:
        spread: variances of f(x), [..., d].
        coefficients: Hermite coefficients, each [..., d].
        rho: correlations [..., d, d].
        absolute: whether the number in TOLERANCE passes too, or only the share.
    """
    xp = namespace(spread)
    least, share, _ = TOLERANCE[precision(spread)]
    excess = gaps(spread, coefficients) / xp.clip(
        share * spread, min=least if absolute else TINY_VARIANCE
    )
    negligible = xp.all(excess <= 1)
    if truth(negligible):
        return ~negligible
    # |ρ|^(order+1) √(excess_i excess_j) > 1, with powers of vectors only
    reach = excess ** (0.5 / (len(coefficients) + 1))
    return above_diagonal(spread) & (xp.abs(stop_gradient(rho)) * outer(reach, reach) > 1)


def beyond_residue(total: Array, bound: Array, size: Array) -> Array:
    """Pairs of which the certificate exceeds RESIDUE.

    Args:
        total: the series.
        bound: the certificate.
        size: product of the standard deviations.
    """
    xp = namespace(total)
    share, least = RESIDUE[precision(total)]
    return bound > xp.maximum(share * xp.abs(stop_gradient(total)), least * size)
