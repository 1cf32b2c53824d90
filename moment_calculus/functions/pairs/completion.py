"""Mehler's series completed where it converges slowly, as far as values can steer a computation.

The terms that are left out come from f̂, a similar function with known pairs: they add up to
Cov(f̂(x_i), f̂(x_j)) − Σ ρⁿ ĝ_n ĝ_n, n = 1 … order. Or the whole covariance is integrated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from moment_calculus.functions.base import Activation, Surrogate, correlation
from moment_calculus.functions.pairs.common_factor import numeric_covariance
from moment_calculus.functions.pairs.masks import places, put, take
from moment_calculus.functions.pairs.mehler import (
    above_diagonal,
    beyond_residue,
    beyond_tolerance,
    gaps,
    series,
    truth,
)
from moment_calculus.numerics.arrays import Array, outer
from moment_calculus.numerics.special import namespace, safe_scale, stop_gradient

Meet = Callable[[Array, Array], Array]


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

    def deviation(self) -> Array:
        """Standard deviation of f(x), without gradient."""
        return stop_gradient(self.moments()[1]) ** 0.5

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of f(x), arranged."""
        mean, variance = self.activation.moments(self.mean, self.variance)
        return self.arranged(mean), self.arranged(variance)

    def arguments(self) -> tuple[Array, Array]:
        """Mean and variance of x, arranged."""
        return self.arranged(self.mean), self.arranged(self.variance)

    def hermite(self, order: int) -> list[Array]:
        """Hermite coefficients, arranged."""
        found = self.activation.hermite(self.mean, self.variance, order)
        return [self.arranged(coefficient) for coefficient in found]

    @property
    def uniform(self) -> bool:
        """Whether f is the same of every component: none of its parameters is an array."""
        single = namespace(self.mean).zeros_like(self.mean[(0,) * self.mean.ndim])[None]
        return tuple(self.activation(single).shape) == (1,)


def by_surrogate(
    activation: Activation,
    surrogate: Surrogate,
    mean: Array,
    covariance: Array,
    spread: Array,
    order: int,
) -> Array:
    """The series of as many terms as are needed, up to 2 · order, and the rest where it matters.

    Args:
        activation: f.
        surrogate: f̂.
        mean: [..., d].
        covariance: [..., d, d].
        spread: variances of f(x), [..., d].
        order: number of terms to begin with.

    Returns:
        [..., d, d]; the diagonal is unspecified.
    """
    variance = namespace(covariance).linalg.diagonal(covariance)
    rho = correlation(variance, covariance)
    for terms in (order, 2 * order):
        coefficients = activation.hermite(mean, variance, terms)
        fixed = stop_gradient(spread)
        doubtful = beyond_tolerance(fixed, coefficients, rho, absolute=surrogate.absolute)
        verdict = truth(namespace(rho).any(doubtful))
        if verdict is False:
            break
    total = series(coefficients, coefficients, rho, outer)
    if not verdict:
        return total
    return total + _rest(surrogate, mean, variance, rho, doubtful, terms)


def _rest(
    surrogate: Surrogate,
    mean: Array,
    variance: Array,
    rho: Array,
    doubtful: Array,
    order: int,
) -> Array:
    """What the surrogate's series lacks after ``order`` terms, for the doubtful pairs; else 0."""
    xp = namespace(mean)
    shape = doubtful.shape
    mean, variance = (xp.broadcast_to(part, shape[:-1]) for part in (mean, variance))
    flat, first, second = places(doubtful)
    tables = [
        xp.reshape(table, (-1, table.shape[-1]))
        for table in (
            xp.stack(surrogate.hermite(mean, variance, order), axis=-1),
            *surrogate.features(mean, variance),
        )
    ]
    left, *left_features = (xp.take(table, first, axis=0) for table in tables)
    right, *right_features = (xp.take(table, second, axis=0) for table in tables)
    rho = take(rho, shape, flat)
    rest = surrogate.pairs(tuple(left_features), tuple(right_features), rho)
    known = 0.0
    for n in reversed(range(order)):
        known = rho * (known + left[:, n] * right[:, n])
    return put(rest - known, doubtful, xp.zeros_like(rest[0]), symmetric=True)


def function_covariance(
    first: Operand, second: Operand, covariance: Array, order: int, meet: Meet = outer
) -> Array:
    """The series of as many terms as are needed, up to 2 · order, and quadrature beyond.

    Under a tracer, and for functions with parameters that are arrays, the series of 2 · order
    terms.

    Args:
        first: f of x, [..., d].
        second: g of y, [..., e]; the same object for the pairs of one activation, of which the
            diagonal is then unspecified.
        covariance: Cov(x, y), [..., d, e].
        order: number of terms to begin with.
        meet: how x and y meet: :func:`outer`, or :func:`alike` for x_i with y_i alone; the
            covariance and the result then are [..., d].

    Returns:
        Of the shape of the covariance.

    Source: Mehler's formula.
    """
    xp, symmetric = namespace(covariance), first is second
    scales = (safe_scale(operand.arguments()[1]) for operand in (first, second))
    rho = xp.clip(covariance / meet(*scales), min=-1.0, max=1.0)
    deviations = first.deviation(), second.deviation()
    for terms in (order, 2 * order):
        left = first.hermite(terms)
        right = left if symmetric else second.hermite(terms)
        total = series(left, right, rho, meet)
        rest = (gaps(d**2, g) ** 0.5 for d, g in zip(deviations, (left, right), strict=True))
        bound = xp.abs(stop_gradient(rho)) ** (terms + 1) * meet(*rest)
        doubtful = beyond_residue(total, bound, meet(*deviations))
        if symmetric:
            doubtful = doubtful & above_diagonal(first.mean)
        verdict = truth(xp.any(doubtful))
        if verdict is False:
            return total
    if verdict is None or not (first.uniform and second.uniform):
        return total
    return _replaced(first, second, covariance, total, doubtful, meet)


def alike(left: Array, right: Array) -> Array:
    """How components meet of which each has one partner, beside :func:`outer`.

    Args:
        left: [..., d].
        right: [..., d].
    """
    return left * right


def _replaced(
    first: Operand,
    second: Operand,
    covariance: Array,
    total: Array,
    doubtful: Array,
    meet: Meet,
) -> Array:
    """The doubtful pairs integrated, the others from the series."""
    flat, left, right = places(doubtful)
    heads, tails = doubtful.shape[:-1], (*doubtful.shape[:-2], doubtful.shape[-1])
    if meet is alike:
        left = right = flat
        heads = tails = doubtful.shape
    mean, variance = (
        (take(one, heads, left), take(two, tails, right))
        for one, two in zip(first.arguments(), second.arguments(), strict=True)
    )
    chosen = take(covariance, doubtful.shape, flat)
    values = numeric_covariance(first.activation, second.activation, mean, variance, chosen)
    return put(values, doubtful, total, symmetric=first is second)
