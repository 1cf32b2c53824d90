"""Mehler's series of the covariance of activations, and what it leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from moment_calculus.functions.base import Activation, Meet, Moments, correlation, in_units
from moment_calculus.functions.pairs.appell import appell_series
from moment_calculus.numerics.arrays import Array, diagonal, outer
from moment_calculus.numerics.execution import accumulated
from moment_calculus.numerics.special import namespace, safe_scale


class Operand(NamedTuple):
    """A function of Gaussians.

    Args:
        activation: f.
        mean: means of x, in the layout in which f takes x.
        variance: variances of x, of the same shape.
        arranged: brings arrays of that layout to [..., d].
    """

    activation: Activation
    mean: Array
    variance: Array
    arranged: Callable[[Array], Array] = lambda array: array

    def moments(self) -> Moments:
        """Mean and variance of x, arranged."""
        return self.arranged(self.mean), self.arranged(self.variance)

    def hermite(self, order: int) -> list[Array]:
        """Hermite coefficients, arranged."""
        found = self.activation.hermite(self.mean, self.variance, order)
        return [self.arranged(coefficient) for coefficient in found]


def alike(left: Array, right: Array) -> Array:
    """How components meet of which each has one partner, beside :func:`outer`.

    Args:
        left: [..., d].
        right: [..., d].
    """
    return left * right


def series(left: Sequence[Array], right: Sequence[Array], rho: Array, meet: Meet = outer) -> Array:
    """The sum of ρⁿ g_n h_n, n ≥ 1, over all coefficients given; under JAX in a compiled loop.

    Args:
        left: Hermite coefficients g_n of the first variables, each [..., d].
        right: those of the second, h_n, each [..., e].
        rho: correlations [..., d, e].
        meet: how the arrays of the two sides meet, such as the outer product.
    """
    xp = namespace(rho)
    columns = tuple(xp.stack([*terms][::-1], axis=0) for terms in (left, right))
    return accumulated(lambda total, pair: rho * (total + meet(*pair)), columns, 0.0 * rho)


def _appell_series(
    first: Operand, second: Operand, covariance: Array, order: int, meet: Meet
) -> Array:
    """As :func:`function_covariance`, with derivatives in closed form."""
    sides: tuple = (..., ...)
    if meet is outer:
        sides = (..., slice(None), None), (..., None, slice(None))
    # a moment with less of a batch than the covariance has all of its axes for the series
    lead = (None,) * covariance.ndim
    moments = [
        moment[place][lead[moment[place].ndim :]]
        for operand, place in zip((first, second), sides, strict=True)
        for moment in operand.moments()
    ]
    same = first is second and meet is outer
    return appell_series(first.activation, second.activation, order, same)(*moments, covariance)


def function_covariance(
    first: Operand, second: Operand, covariance: Array, order: int, meet: Meet = outer
) -> Array:
    """Covariance of functions of Gaussians, in closed form or by the series.

    The error of the series is that of the one for pairs of the same function.

    Args:
        first: f of x, [..., d].
        second: g of y, [..., e].
        covariance: Cov(x, y), [..., d, e].
        order: number of terms.
        meet: how x and y meet: :func:`outer`, or :func:`alike` for x_i with y_i alone; the
            covariance and the result then are [..., d].

    Returns:
        Of the shape of the covariance.

    Source: Mehler's formula.
    """
    ends = first.moments(), second.moments()
    exact = first.activation.cross_covariance(second.activation, *ends, covariance, meet)
    if exact is not NotImplemented:
        return exact
    if first.activation.appell and second.activation.appell:
        return _appell_series(first, second, covariance, order, meet)
    inverse = meet(*(1 / safe_scale(variance) for _, variance in ends))
    rho = in_units(covariance, inverse)
    return series(first.hermite(order), second.hermite(order), rho, meet)


def mehler(activation: Activation, mean: Array, covariance: Array, *, order: int) -> Array:
    """Truncated Mehler series Σ ρⁿ g_n(x_i) g_n(x_j), n = 1 … order.

    Args:
        activation: f.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        order: number of terms.

    Returns:
        Positive semi-definite matrices [..., d, d], the diagonal truncated like the rest.

    Source: Mehler's formula.
    """
    variance = diagonal(covariance)
    if activation.appell:
        operand = Operand(activation, mean, variance)
        return _appell_series(operand, operand, covariance, order, outer)
    coefficients = activation.hermite(mean, variance, order)
    return series(coefficients, coefficients, correlation(variance, covariance))


def mehler_certificate(activation: Activation, mean: Array, covariance: Array, order: int) -> Array:
    """Bound on the absolute truncation error of :func:`mehler`, up to rounding.

    Args:
        activation: f.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        order: number of terms of the series.

    Returns:
        |ρ|^(order+1) √(gap_i gap_j) in [..., d, d], with gap = Var f − Σ g_n², at least 0.

    Source: Cauchy–Schwarz on the terms that are left out.
    """
    xp = namespace(mean)
    variance = diagonal(covariance)
    rho = correlation(variance, covariance)
    gap = activation.moments(mean, variance)[1]
    for coefficient in activation.hermite(mean, variance, order):
        gap = gap - coefficient * coefficient
    root = xp.clip(gap, min=0.0) ** 0.5
    return xp.abs(rho) ** (order + 1) * outer(root, root)
