"""Mehler's series of covariances of activations, and a bound on its truncation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.base import (
    Activation,
    Moments,
    Pairing,
    clipped_correlation,
    correlation,
)
from moment_calculus.numerics.arrays import Array, diagonal, outer
from moment_calculus.numerics.execution import fold
from moment_calculus.numerics.special import constants, elementwise, namespace, safe_scale


class Operand(NamedTuple):
    """A function of Gaussian variables."""

    activation: Activation  # f
    mean: Array  # of x, in the layout in which f takes x
    variance: Array  # of x, of the same shape
    # brings arrays of that layout to [..., d]
    to_features_last: Callable[[Array], Array] = lambda array: array

    def moments(self) -> Moments:
        """Return mean and variance of x, [..., d]."""
        return self.to_features_last(self.mean), self.to_features_last(self.variance)

    def hermite(self, order: int) -> list[Array]:
        """Return the Hermite coefficients, each [..., d]."""
        coefficients = self.activation.hermite(self.mean, self.variance, order)
        return [self.to_features_last(coefficient) for coefficient in coefficients]


def elementwise_product(left: Array, right: Array) -> Array:
    """Combine components that have one partner each, [..., d], unlike :func:`outer`."""
    return left * right


def series(
    left: Sequence[Array], right: Sequence[Array], rho: Array, combine: Pairing = outer
) -> Array:
    """Return Σ ρⁿ g_n h_n, n ≥ 1, for ρ [..., d, e]; under JAX in a compiled loop."""
    xp = namespace(rho)
    columns = tuple(xp.stack([*terms][::-1], axis=0) for terms in (left, right))
    return fold(lambda total, pair: rho * (total + combine(*pair)), columns, 0.0 * rho)


def _appell_series(
    first: Operand, second: Operand, covariance: Array, order: int, combine: Pairing
) -> Array:
    """Return :func:`function_covariance` by the series, with explicit derivatives."""
    sides: tuple = (..., ...)
    if combine is outer:
        sides = (..., slice(None), None), (..., None, slice(None))
    # the series needs moments of the rank of the covariance
    lead = (None,) * covariance.ndim
    moments = [
        moment[place][lead[moment[place].ndim :]]
        for operand, place in zip((first, second), sides, strict=True)
        for moment in operand.moments()
    ]
    same = first is second and combine is outer
    return appell_series(first.activation, second.activation, order, same)(*moments, covariance)


def function_covariance(
    first: Operand, second: Operand, covariance: Array, order: int, combine: Pairing = outer
) -> Array:
    """Return Cov(f(x), g(y)), in closed form or by ``order`` terms of Mehler's formula.

    The covariance Cov(x, y) and the result are [..., d, e]; where ``combine`` is
    :func:`elementwise_product`, which pairs x_i with y_i alone, they are [..., d].
    """
    ends = first.moments(), second.moments()
    exact = first.activation.cross_covariance(second.activation, *ends, covariance, combine)
    if exact is not NotImplemented:
        return exact
    if first.activation.appell and second.activation.appell:
        return _appell_series(first, second, covariance, order, combine)
    inverse = combine(*(1 / safe_scale(variance) for _, variance in ends))
    rho = clipped_correlation(covariance, inverse)
    return series(first.hermite(order), second.hermite(order), rho, combine)


def mehler(activation: Activation, mean: Array, covariance: Array, *, order: int) -> Array:
    """Return the series Σ ρⁿ g_n(x_i) g_n(x_j), n = 1 … order, of all pairs, [..., d, d].

    It is positive semi-definite; the diagonal is truncated like the rest.
    """
    variance = diagonal(covariance)
    if activation.appell:
        operand = Operand(activation, mean, variance)
        return _appell_series(operand, operand, covariance, order, outer)
    coefficients = activation.hermite(mean, variance, order)
    return series(coefficients, coefficients, correlation(variance, covariance))


def mehler_certificate(activation: Activation, mean: Array, covariance: Array, order: int) -> Array:
    """Return a bound [..., d, d] on the truncation error of :func:`mehler`, up to rounding.

    By Cauchy–Schwarz it is |ρ|^(order+1) √(gap_i gap_j), with gap = Var f − Σ g_n², at
    least 0.
    """
    xp = namespace(mean)
    variance = diagonal(covariance)
    rho = correlation(variance, covariance)
    gap = activation.moments(mean, variance)[1]
    for coefficient in activation.hermite(mean, variance, order):
        gap = gap - coefficient * coefficient
    root = xp.clip(gap, min=0.0) ** 0.5
    return xp.abs(rho) ** (order + 1) * outer(root, root)


# ----------------------------------------------------------------------------------------
# The series with explicit derivatives. With g_n = σⁿ E f⁽ⁿ⁾/√n! the derivatives of E f⁽ⁿ⁾
# by μ and v are E f⁽ⁿ⁺¹⁾ and E f⁽ⁿ⁺²⁾/2. Those of the series are series of the
# coefficients one and two places on: no term has to be stored.


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
    """Return two sums, if wanted, and the derivatives by one side's mean and variance."""
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
