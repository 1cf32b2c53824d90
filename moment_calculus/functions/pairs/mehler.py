"""Mehler's series of covariances of activations, and a bound on its truncation.

Eager programs see the correlations: most of those of a layer are small, and a few terms
are enough. Where few pairs need more terms, those are computed in closed form. By
Cauchy–Schwarz, N terms leave out at most |ρ|^(N+1) √(r_i r_j) in standard deviations of
f(x_i) and f(x_j), with r = 1 − Σ g_n²/Var f, the share of the variance that is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.base import (
    Activation,
    Moments,
    Pairing,
    clipped_correlation,
    correlation,
)
from moment_calculus.functions.pairs.uncorrelated import (
    correlated_rows,
    covariance_without_correlations,
)
from moment_calculus.numerics.arrays import (
    Array,
    constants,
    diagonal,
    namespace,
    outer,
    safe_scale,
    set_diagonal,
    stop_gradient,
)
from moment_calculus.numerics.derivatives import Pullback, elementwise, is_eager, with_pullback
from moment_calculus.numerics.execution import fold, plus_product, threads, together


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

    def hermite(self, order: int) -> Array:
        """Return the Hermite coefficients, [order, ..., d]."""
        coefficients = self.activation.hermite(self.mean, self.variance, order)
        return self.to_features_last(together(coefficients))


def elementwise_product(left: Array, right: Array) -> Array:
    """Combine components that have one partner each, [..., d], unlike :func:`outer`."""
    return left * right


def series(
    left: Sequence[Array], right: Sequence[Array], rho: Array, combine: Pairing = outer
) -> Array:
    """Return Σ ρⁿ g_n h_n, n ≥ 1, for ρ [..., d, e]; under JAX in a compiled loop."""
    xp = namespace(rho)
    columns = tuple(xp.flip(together(terms), axis=0) for terms in (left, right))
    return fold(lambda total, pair: rho * (total + combine(*pair)), columns, 0.0 * rho)


def _appell_series(
    first: Operand, second: Operand, covariance: Array, order: int, combine: Pairing
) -> Array:
    """Return :func:`function_covariance` by the series, with explicit derivatives."""
    sides: tuple = (..., ...)
    if combine is outer:
        sides = (..., slice(None), None), (..., None, slice(None))
    placed = [
        moment[keys]
        for operand, keys in zip((first, second), sides, strict=True)
        for moment in operand.moments()
    ]
    # the series needs moments of the rank of the covariance
    lead = (None,) * max(covariance.ndim, *(moment.ndim for moment in placed))
    moments = [moment[lead[moment.ndim :]] for moment in placed]
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
        left = together(first.hermite(*moments[:2], order + more))
        if same:
            return left, xp.matrix_transpose(left)
        return left, together(second.hermite(*moments[2:], order + more))

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
    orders = xp.reshape(constants(np.arange(1.0, count + 1), rho), (-1, *(1,) * rho.ndim))
    rows = [(orders + 1) ** 0.5 * terms[1:-1], ((orders + 1) * (orders + 2)) ** 0.5 * terms[2:]]
    # times ρ the first is the series; the second is its derivative by ρ
    start = [terms[:-2], orders * terms[:-2]] if with_value else []
    *rest, slope, bend = _sums(xp.stack([*start, *rows], axis=1), others[:-2], rho)
    scale = safe_scale(variance)
    return [*rest, rho * slope / scale, rho * bend / (2 * scale * scale)]


def _sums(rows: Array, columns: Array, rho: Array) -> Array:
    """Return Σ ρⁿ⁻¹ r_n c_n for several r, of rows [order, k, …] and columns [order, …]."""
    start, flip = 0.0 * (rows[0] * columns[0] * rho), namespace(rho).flip
    step = lambda total, pair: rho * total + pair[0] * pair[1]  # noqa: E731
    return fold(step, (flip(rows, axis=0), flip(columns, axis=0)), start)


TOLERANCE = {4: 3e-8, 8: 1e-12}  # of the certificate, by the bytes of a number
MEASURABLE = {4: 1e-4, 8: 1e-8}  # smaller shares may be errors of the variance
FEW_TERMS = 20  # if so many terms are enough for all pairs, none is computed in closed form
FIRST = (FEW_TERMS // 2, FEW_TERMS)  # numbers of terms that are tried first
CANDIDATES = (12, 16, 24, 32, 48)  # numbers of terms beside pairs in closed form
CLOSED_FORM_COST = 64  # the closed form takes as long as so many terms
SINGLE_PAIR_COST = 2.0 * CLOSED_FORM_COST  # the same for single pairs in closed form


class Truncation(NamedTuple):
    """A number of terms, and the pairs for which they are enough."""

    terms: Array  # g_n, two more than are summed: [order + 2, batch, d]
    bound: float  # |ρ| up to which they are enough


@functools.lru_cache(maxsize=256)
def has_closed_pairs(activation: Activation) -> bool:
    """Return whether an activation has pair covariances in closed form."""
    result = activation.pair_covariance(np.zeros(2), np.ones(2), np.eye(2))
    return result is not NotImplemented


def cheapest_truncation(
    activation: Activation, moments: tuple[Array, ...], rho: Array, order: int
) -> Truncation | None:
    """Return the cut that takes the least time; None for the closed form, or if a ρ is NaN.

    ``moments`` are E x, Var x and Var f(x), [batch, d]; ρ is zero on the diagonal.
    ``order`` is the largest number of terms, which has to be enough if there is no closed
    form.
    """
    xp, closed = namespace(rho), has_closed_pairs(activation)
    largest = max(float(xp.max(rho)), -float(xp.min(rho)))
    if not largest <= 1:
        return None
    tolerance, limit = TOLERANCE[rho.dtype.itemsize], CLOSED_FORM_COST if closed else order
    count = _terms_without_shares(largest, tolerance, limit)
    first_looks = {few for few in FIRST if few < count and _largest_bound(few, rho) >= largest}
    for tried in (*sorted(first_looks), count):
        terms = together(activation.hermite(moments[0], moments[1], tried + 2))
        bounds = _bounds(terms[:-2], moments[2], tolerance)
        enough = next((n for n, bound in enumerate(bounds, start=1) if bound >= largest), None)
        if enough is not None and enough <= FEW_TERMS:
            return Truncation(terms[: enough + 2], 1.0)
    if closed:
        return _beside_closed_form(terms, bounds, enough, rho)
    return Truncation(terms[: (enough or count) + 2], 1.0)


def _terms_without_shares(largest: float, tolerance: float, limit: int) -> int:
    """Return a number of terms that is enough whatever their shares of the variance."""
    if largest in (0.0, 1.0):
        return limit if largest else 1
    return min(limit, max(1, math.ceil(math.log(tolerance) / math.log(largest)) - 1))


def _largest_bound(terms: int, rho: Array) -> float:
    """Return the |ρ| beyond which no shares let so many terms be enough."""
    size = rho.dtype.itemsize
    return (TOLERANCE[size] / MEASURABLE[size]) ** (1 / (terms + 1))


def largest_share_left(explained: Array, variance: Array, axis: int | tuple[int, ...]) -> Array:
    """Return the largest share of a variance that a series leaves, which explains a part of it."""
    xp, random = namespace(explained), variance > 0
    shares = explained / xp.where(random, variance, 1 + 0 * variance)
    rest = xp.max(xp.where(random, 1 - shares, 0 * shares), axis=axis)
    return xp.clip(rest, min=MEASURABLE[explained.dtype.itemsize])


def _bounds(terms: Array, variance: Array, tolerance: float) -> list[float]:
    """Return |ρ| up to which n = 1, 2, … terms are enough."""
    explained = namespace(terms).cumulative_sum(terms * terms, axis=0)
    shares = largest_share_left(explained, variance, tuple(range(1, terms.ndim))).tolist()
    return [min(1.0, (tolerance / share) ** (1 / (n + 1))) for n, share in enumerate(shares, 1)]


def _beside_closed_form(
    terms: Array, bounds: list[float], enough: int | None, rho: Array
) -> Truncation | None:
    """Return few terms beside pairs in closed form, or terms for all; None if slow."""
    xp = namespace(rho)
    size = xp.abs(rho)
    costs = {} if enough is None else {enough: float(enough)}
    for fewer in CANDIDATES:
        if fewer < min(len(bounds), enough or CLOSED_FORM_COST):
            closed_share = float(xp.mean(xp.astype(size > bounds[fewer - 1], rho.dtype)))
            costs[fewer] = fewer + SINGLE_PAIR_COST * closed_share
    if not costs or min(costs.values()) > CLOSED_FORM_COST:
        return None
    order = min(costs, key=costs.__getitem__)
    return Truncation(terms[: order + 2], 1.0 if order == enough else bounds[order - 1])


# ----------------------------------------------------------------------------------------
# Covariances of a layer by the truncated series


SMALLEST = 4096  # matrix entries from which on the certificate pays
ROOM = 1 << 16  # matrix entries of a piece, for each thread that works on it
General = Callable[..., Array]


def truncated_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    fallback: General,
    spread: Array,
) -> Array | None:
    """Return the covariance [..., d, d] of f(x) by a short series; None where nothing is gained.

    The error is at most 3e-8 standard deviations of f(x_i) and f(x_j), 1e-12 in double
    precision, or that of ``order`` terms. ``fallback`` computes the same for derivatives
    of the gradient.
    """
    if not is_large_enough(activation, mean, covariance) or not is_eager(mean, covariance):
        return None
    xp, size = namespace(mean), mean.shape[-1]
    flat = xp.reshape(covariance, (-1, size, size))
    mean, spread = (xp.reshape(part, (-1, size)) for part in (mean, spread))
    moments = mean, diagonal(flat), spread
    rows = correlated_rows(flat)
    if rows is None:
        result = _batch_covariance(activation, moments, flat, order, fallback)
    else:
        chosen = tuple(part[rows] for part in moments)
        result = _batch_covariance(activation, chosen, flat[rows], order, fallback)
        if result is not None:
            whole = covariance_without_correlations(activation, moments, flat)
            whole[rows] = result
            result = whole
    return None if result is None else xp.reshape(result, covariance.shape)


def is_large_enough(activation: Activation, mean: Array, covariance: Array) -> bool:
    """Return whether a layer is large enough, and its series can be cut."""
    return (
        activation.appell
        and math.prod(covariance.shape) >= SMALLEST
        and covariance.shape[:-1] == mean.shape
    )


def _batch_covariance(
    activation: Activation,
    moments: tuple[Array, Array, Array],
    covariance: Array,
    order: int,
    fallback: General,
) -> Array | None:
    mean, variance, spread = moments
    fixed_moments = tuple(map(stop_gradient, moments))
    rho = _correlations(fixed_moments[1], stop_gradient(covariance))
    cut = cheapest_truncation(activation, fixed_moments, rho, order)
    if cut is None:
        return None
    above = _strong_pairs(rho, cut.bound)
    for pairs in _both_sides(above):
        rho[pairs] = 0
    series = with_pullback(_series(cut.terms, rho, 1 / safe_scale(fixed_moments[1])), fallback)
    result = series(mean, variance, covariance, spread)
    if above:
        values = _closed_pairs(activation, mean, variance, covariance, above)
        for pairs in _both_sides(above):
            result[pairs] = values
    return result


def _correlations(variance: Array, covariance: Array) -> Array:
    """Return the correlations, zero on the diagonal."""
    rho = correlation(variance, covariance)
    set_diagonal(rho, 0)
    return rho


def _strong_pairs(rho: Array, bound: float) -> tuple[Array, ...]:
    """Return batch indices, rows and columns of pairs with |ρ| > bound, each once."""
    if bound >= 1:
        return ()
    xp = namespace(rho)
    batch, rows, columns = xp.nonzero(xp.abs(rho) > bound)
    once = rows < columns
    return batch[once], rows[once], columns[once]


def _both_sides(pairs: tuple[Array, ...]) -> list[tuple[Array, ...]]:
    if not pairs:
        return []
    batch, rows, columns = pairs
    return [(batch, rows, columns), (batch, columns, rows)]


def _closed_pairs(
    activation: Activation,
    mean: Array,
    variance: Array,
    covariance: Array,
    pairs: tuple[Array, ...],
) -> Array:
    """Return the covariances of single pairs in closed form, [pairs]."""
    xp = namespace(mean)
    batch, rows, columns = pairs
    sides = ((batch, rows), (batch, columns))
    means, variances = (
        xp.stack([part[side] for side in sides], axis=-1) for part in (mean, variance)
    )
    crossed = covariance[pairs][:, None, None] * constants(1 - np.eye(2), mean)
    matrices = crossed + variances[:, :, None] * constants(np.eye(2), mean)
    return activation.pair_covariance(means, variances, matrices)[:, 0, 1]


def _series(terms: Array, rho: Array, inverse: Array) -> Callable[..., tuple[Array, Pullback]]:
    """Return a function to the series, with the variances on the diagonal, and its gradient.

    ``terms`` are Hermite coefficients, two more than are summed, [order + 2, batch, d].
    """
    xp = namespace(rho)

    def function(*arrays: Array) -> tuple[Array, Pullback]:
        values, slopes = series_and_slope(terms[:-2], rho)
        set_diagonal(values, arrays[-1])
        set_diagonal(slopes, 0)

        def pullback(gradient: Array) -> tuple[Any, ...]:
            sums = series_gradient(terms[:-2], rho, gradient)
            n = constants(np.arange(1.0, len(sums) + 1)[:, None, None], rho)
            by_mean = xp.sum((n + 1) ** 0.5 * terms[1:-1] * sums, axis=0) * inverse
            bends = xp.sum(((n + 1) * (n + 2)) ** 0.5 * terms[2:] * sums, axis=0)
            by_covariance = gradient * slopes * outer(inverse, inverse)
            return by_mean, bends * inverse * inverse / 2, by_covariance, diagonal(gradient)

        return values, pullback

    return function


# Sums Σ ρⁿ g_n(x_i) g_n(x_j) of all pairs and their gradient, in pieces that fit a cache.


def series_and_slope(terms: Array, rho: Array) -> tuple[Array, Array]:
    """Return Σ ρⁿ g_n(x_i) g_n(x_j) [batch, d, d], and the derivatives by ρ."""
    xp = namespace(rho)
    values, slopes = xp.empty_like(rho), xp.empty_like(rho)
    for batch, rows in _pieces(rho.shape, ROOM * threads(rho)):
        part, left = rho[batch, rows], terms[:, batch, rows, None]
        values[batch, rows], slopes[batch, rows] = _horner(left, terms[:, batch, None, :], part)
    return values, slopes


def _horner(left: Array, right: Array, rho: Array) -> tuple[Array, Array]:
    total, slope = left[-1] * right[-1], namespace(rho).zeros_like(rho)
    for n in range(len(left) - 2, -1, -1):
        slope = plus_product(total, slope, rho)
        total = plus_product(left[n] * right[n], total, rho)
    return total * rho, plus_product(total, slope, rho)


def series_gradient(terms: Array, rho: Array, weights: Array) -> Array:
    """Return Σ_j (w_ij + w_ji) ρ_ijⁿ g_n(x_j), [order, batch, d]: the gradient by g_n(x_i)."""
    xp = namespace(rho)
    gradient = xp.empty_like(terms)
    for batch, rows in _pieces(rho.shape, ROOM * threads(rho)):
        part, right = rho[batch, rows], terms[:, batch, None, :]
        power = weights[batch, rows] + weights.mT[batch, rows]
        for n in range(len(terms)):
            power = power * part
            gradient[n, batch, rows] = xp.sum(power * right[n], axis=-1)
    return gradient


def _pieces(shape: tuple[int, ...], room: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the batch with all rows, or of one matrix with some of its rows."""
    batch, rows, size = shape
    count = max(1, room // (rows * size))
    height = max(1, min(rows, room // size))
    for start in range(0, batch, count):
        for row in range(0, rows, height):
            yield slice(start, start + count), slice(row, row + height)
