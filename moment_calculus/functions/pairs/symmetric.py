"""Mehler's series of all pairs for programs that are compiled: one expression for each entry.

A compiler computes an entry, or what it adds to a gradient, in one pass over the correlations.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.functions.base import Activation, in_units
from moment_calculus.functions.pairs.cuts import TOLERANCE, has_closed_pairs, largest_share_left
from moment_calculus.numerics.arrays import Array, diagonal, off_diagonal_mask, outer, transpose
from moment_calculus.numerics.choices import either
from moment_calculus.numerics.derivatives.in_jax import held_apart, with_tangent
from moment_calculus.numerics.execution import LARGE, by_rows
from moment_calculus.numerics.special import namespace, safe_scale

ROOM = 1 << 16  # entries at a time
ORDER = {4: 24, 8: 48}  # terms beside a closed form, by the bytes of a number


def compiled_covariance(
    activation: Activation, mean: Array, covariance: Array, order: int, general: Callable
) -> Array | None:
    """As :func:`moment_calculus.functions.pairs.certified.certified_covariance`, of JAX arrays.

    Where there is a closed form, the compiled program has both and takes the series if its
    certificate holds for all pairs.

    Args:
        activation: as there.
        mean: as there.
        covariance: as there.
        order: as there.
        general: as there.
    """
    if not array_api_compat.is_jax_array(mean) or not activation.appell:
        return None
    if covariance.size < LARGE or covariance.shape[:-1] != mean.shape:
        return None
    closed = has_closed_pairs(activation)
    terms = ORDER[mean.dtype.itemsize] if closed else order

    def series(mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
        found = symmetric_series(activation, terms)(mean, variance, covariance)
        return namespace(mean).where(off_diagonal_mask(mean), found, spread[..., None])

    def cheapest(*rows: Array) -> Array:
        return either(_is_certified(activation, rows, terms), series, general, *rows)

    variance = diagonal(covariance)
    arrays = mean, variance, covariance, activation.moments(mean, variance)[1]
    flat = [array.reshape(-1, *array.shape[mean.ndim - 1 :]) for array in arrays]
    return by_rows(cheapest if closed else series, ROOM)(*flat).reshape(covariance.shape)


def _is_certified(activation: Activation, arrays: tuple[Array, ...], order: int) -> Array:
    """Whether the series of so many terms serves for all pairs."""
    mean, variance, covariance, spread = arrays
    xp, inverse = namespace(mean), 1 / safe_scale(variance)
    rho = in_units(covariance, outer(inverse, inverse))
    largest = xp.max(xp.where(off_diagonal_mask(mean), xp.abs(rho), 0 * rho))
    left = largest_share_left(xp.stack(activation.hermite(mean, variance, order)), spread)[-1]
    return largest ** (order + 1) * left <= TOLERANCE[mean.dtype.itemsize]


@functools.lru_cache(maxsize=256)
def symmetric_series(activation: Activation, order: int) -> Callable[..., Array]:
    """Σ ρⁿ g_n(x_i) g_n(x_j) of JAX arrays, as a function of E x, Var x and Cov(x).

    Args:
        activation: f, whose coefficients are ``appell``.
        order: number of terms.

    Source: Mehler's formula; Price's theorem.
    """

    def prepared(more: int, mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        terms = xp.stack(list(activation.hermite(mean, variance, order + more)), axis=0)
        return held_apart(terms, 1 / safe_scale(variance))

    def value(*arrays: Array) -> Array:
        terms, inverse = prepared(0, *arrays[:2])
        rho = in_units(arrays[2], outer(inverse, inverse))
        return rho * _sum(terms, terms, rho)

    def tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
        by_mean, by_variance, by_covariance = tangents
        terms, inverse = prepared(2, *primals[:2])
        size = outer(inverse, inverse)
        rho = in_units(primals[2], size)
        first = terms[:-2]
        gain = _sum([k * g for k, g in enumerate(first, start=1)], first, rho) * size
        shifted = [math.sqrt(k + 1) * g for k, g in enumerate(terms[1:-1], start=1)]
        bent = [math.sqrt((k + 1) * (k + 2)) / 2 * g for k, g in enumerate(terms[2:], start=1)]
        slope, bend = (rho * _sum(side, first, rho) for side in (shifted, bent))
        side = slope * (by_mean * inverse)[..., None] + bend * (by_variance * inverse**2)[..., None]
        return rho * _sum(first, first, rho), gain * by_covariance + side + transpose(side)

    return with_tangent(value, tangent)


def _sum(left: Any, right: Any, rho: Array) -> Array:
    """Σ ρⁿ⁻¹ l_n(i) r_n(j)."""
    total = 0.0 * rho
    for first, second in zip(reversed(list(left)), reversed(list(right)), strict=True):
        total = rho * total + outer(first, second)
    return total
