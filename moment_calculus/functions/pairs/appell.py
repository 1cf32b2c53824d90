"""Mehler's series with explicit derivatives.

With g_n = σⁿ E f⁽ⁿ⁾/√n! the derivatives of E f⁽ⁿ⁾ by μ and v are E f⁽ⁿ⁺¹⁾ and E f⁽ⁿ⁺²⁾/2.
Those of the series are series of the coefficients one and two places on: no term has to
be stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.functions.base import clipped_correlation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import fold
from moment_calculus.numerics.special import constants, elementwise, namespace, safe_scale


@functools.lru_cache(maxsize=256)
def appell_series(first: Any, second: Any, order: int, same: bool) -> Callable[..., Array]:
    """Return Cov(f(x), g(y)) as a function of E x, Var x, E y, Var y, Cov(x, y), which broadcast.

    Source: Mehler's formula; Price's theorem.
    """

    # same: f is g, and the moments of y are those of x with the last two axes swapped
    def coefficients(more: int, *moments: Array) -> tuple[Array, Array]:
        xp = namespace(moments[0])
        left = xp.stack(first.hermite(*moments[:2], order + more), axis=0)
        if same:
            return left, xp.matrix_transpose(left)
        return left, xp.stack(second.hermite(*moments[2:], order + more), axis=0)

    def inverse_size(moments: list[Array]) -> Array:
        return 1 / safe_scale(moments[1]) * (1 / safe_scale(moments[3]))

    def value(*arrays: Array) -> Array:
        *moments, covariance = arrays
        rho = clipped_correlation(covariance, inverse_size(moments))
        left, right = coefficients(0, *moments)
        return rho * _sums(left[:, None], right, rho)[0]

    def values_and_partials(*arrays: Array) -> tuple[Array, ...]:
        *moments, covariance = arrays
        inverse = inverse_size(moments)
        rho = clipped_correlation(covariance, inverse)
        left, right = coefficients(2, *moments)
        value, gain, *slopes = _side(left, right, moments[1], rho, with_value=True)
        mirrored = (
            [namespace(rho).matrix_transpose(slope) for slope in slopes]
            if same
            else _side(right, left, moments[3], rho)
        )
        return rho * value, *slopes, *mirrored, gain * inverse

    return elementwise(
        value,
        lambda *arrays: (values_and_partials(*arrays)[1:],),
        values_and_partials=values_and_partials,
    )


def _side(
    terms: Array, others: Array, variance: Array, rho: Array, with_value: bool = False
) -> list[Array]:
    """Return the derivatives by mean and variance of one side; before them two sums on request."""
    xp, count = namespace(rho), terms.shape[0] - 2
    places = xp.reshape(constants(np.arange(1.0, count + 1), rho), (-1, *(1,) * rho.ndim))
    rows = [(places + 1) ** 0.5 * terms[1:-1], ((places + 1) * (places + 2)) ** 0.5 * terms[2:]]
    # times ρ the first is the series; the second is its derivative by ρ
    start = [terms[:-2], places * terms[:-2]] if with_value else []
    *rest, slope, bend = _sums(xp.stack([*start, *rows], axis=1), others[:-2], rho)
    scale = safe_scale(variance)
    return [*rest, rho * slope / scale, rho * bend / (2 * scale * scale)]


def _sums(rows: Array, columns: Array, rho: Array) -> Array:
    """Return Σ ρⁿ⁻¹ r_n c_n for several r, of rows [order, k, …] and columns [order, …]."""
    start, flip = 0.0 * (rows[0] * columns[0] * rho), namespace(rho).flip
    step = lambda total, pair: rho * total + pair[0] * pair[1]  # noqa: E731
    return fold(step, (flip(rows, axis=0), flip(columns, axis=0)), start)
