"""Mehler's series completed where it converges slowly, as far as values can steer a computation.

The terms that are left out come from f̂, a similar function with known pairs: they add up to
Cov(f̂(x_i), f̂(x_j)) − Σ ρⁿ ĝ_n ĝ_n, n = 1 … order. Or the whole covariance is integrated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from moment_calculus.activations.base import Activation, Surrogate, correlation
from moment_calculus.arrays import outer
from moment_calculus.chosen import places, put, take
from moment_calculus.common_factor import numeric_covariance
from moment_calculus.mehler import (
    above_diagonal,
    beyond_residue,
    beyond_tolerance,
    gaps,
    series,
    truth,
)
from moment_calculus.special import namespace, safe_scale, stop_gradient

Array = Any


class Operand(NamedTuple):
    """A function of Gaussians.

    Args:
        activation: f.
        mean: means of x, [..., d].
        variance: variances of x, [..., d].
        spread: variances of f(x), [..., d], where they are known already.
    """

    activation: Activation
    mean: Array
    variance: Array
    spread: Array | None = None

    def deviation(self) -> Array:
        """Standard deviation of f(x), without gradient."""
        spread = self.spread
        if spread is None:
            spread = self.activation.moments(self.mean, self.variance)[1]
        return stop_gradient(spread) ** 0.5


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
        doubtful = beyond_tolerance(stop_gradient(spread), coefficients, rho)
        verdict = truth(namespace(rho).any(doubtful))
        if verdict is False:
            break
    total = series(coefficients, coefficients, rho)
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


def integrated(first: Operand, second: Operand, covariance: Array, order: int) -> Array:
    """The series of as many terms as are needed, up to 2 · order, and quadrature beyond.

    Under a tracer, and for functions with parameters that are arrays, the series of 2 · order
    terms.

    Args:
        first: f of x, [..., d].
        second: g of y, [..., e]; the same object for the pairs of one activation, of which the
            diagonal is then unspecified.
        covariance: Cov(x, y), [..., d, e].
        order: number of terms to begin with.

    Returns:
        [..., d, e].
    """
    xp, symmetric = namespace(covariance), first is second
    scales = outer(safe_scale(first.variance), safe_scale(second.variance))
    rho = xp.clip(covariance / scales, min=-1.0, max=1.0)
    deviations = first.deviation(), second.deviation()
    for terms in (order, 2 * order):
        left, right = _coefficients(first, second, terms)
        total = series(left, right, rho)
        rest = outer(gaps(deviations[0] ** 2, left) ** 0.5, gaps(deviations[1] ** 2, right) ** 0.5)
        bound = xp.abs(stop_gradient(rho)) ** (terms + 1) * rest
        doubtful = beyond_residue(total, bound, outer(*deviations))
        if symmetric:
            doubtful = doubtful & above_diagonal(first.mean)
        verdict = truth(xp.any(doubtful))
        if verdict is False:
            return total
    if verdict is None or not (_uniform(first) and _uniform(second)):
        return total
    return _replaced(first, second, covariance, total, doubtful)


def _coefficients(first: Operand, second: Operand, order: int) -> tuple[list[Array], list[Array]]:
    left = first.activation.hermite(first.mean, first.variance, order)
    if first is second:
        return left, left
    return left, second.activation.hermite(second.mean, second.variance, order)


def _uniform(operand: Operand) -> bool:
    """Whether the function is the same of every component: none of its parameters is an array."""
    single = namespace(operand.mean).zeros_like(operand.mean[(0,) * operand.mean.ndim])[None]
    return tuple(operand.activation(single).shape) == (1,)


def _replaced(
    first: Operand, second: Operand, covariance: Array, total: Array, doubtful: Array
) -> Array:
    """The doubtful pairs integrated, the others from the series."""
    *batch, rows, columns = doubtful.shape
    flat, left, right = places(doubtful)
    mean, variance = (
        (take(one, (*batch, rows), left), take(two, (*batch, columns), right))
        for one, two in ((first.mean, second.mean), (first.variance, second.variance))
    )
    chosen = take(covariance, doubtful.shape, flat)
    values = numeric_covariance(first.activation, second.activation, mean, variance, chosen)
    return put(values, doubtful, total, symmetric=first is second)
