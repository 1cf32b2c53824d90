"""Mehler's series of all pairs, cut where a certificate shows that the rest rounds away.

It serves eager programs, which see the correlations: most of those of a layer are small,
and a few terms are enough. Where few pairs need more terms, those are computed in closed
form. By Cauchy–Schwarz, N terms leave out at most |ρ|^(N+1) √(r_i r_j) in standard
deviations of f(x_i) and f(x_j), with r = 1 − Σ g_n²/Var f, the share of the variance that
is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.base import Activation, correlation
from moment_calculus.numerics.arrays import Array, diagonal, outer, set_diagonal
from moment_calculus.numerics.derivatives import Pullback, is_eager, with_pullback
from moment_calculus.numerics.execution import plus_product, threads
from moment_calculus.numerics.special import constants, namespace, safe_scale, stop_gradient

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
    for tried in sorted({min(first, count) for first in (*FIRST, count)}):
        terms = xp.stack(list(activation.hermite(moments[0], moments[1], tried + 2)), axis=0)
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


def largest_share_left(terms: Array, variance: Array) -> Array:
    """Return the largest share of a variance that n = 1, 2, … terms leave, [order]."""
    xp, random = namespace(terms), variance > 0
    shares = xp.cumulative_sum(terms * terms, axis=0) / xp.where(random, variance, 1 + 0 * variance)
    rest = xp.max(xp.where(random, 1 - shares, 0 * shares), axis=tuple(range(1, terms.ndim)))
    return xp.clip(rest, min=MEASURABLE[terms.dtype.itemsize])


def _bounds(terms: Array, variance: Array, tolerance: float) -> list[float]:
    """Return |ρ| up to which n = 1, 2, … terms are enough."""
    shares = largest_share_left(terms, variance).tolist()
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
    result = _of_batch(activation, (mean, diagonal(flat), spread), flat, order, fallback)
    return None if result is None else xp.reshape(result, covariance.shape)


def is_large_enough(activation: Activation, mean: Array, covariance: Array) -> bool:
    """Return whether a layer is large enough, and its series can be cut."""
    return (
        activation.appell
        and math.prod(covariance.shape) >= SMALLEST
        and covariance.shape[:-1] == mean.shape
    )


def _of_batch(
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
    above = _above(rho, cut.bound)
    for place in _both_sides(above):
        rho[place] = 0
    series = with_pullback(_series(cut.terms, rho, 1 / safe_scale(fixed_moments[1])), fallback)
    result = series(mean, variance, covariance, spread)
    if above:
        values = _closed_pairs(activation, mean, variance, covariance, above)
        for place in _both_sides(above):
            result[place] = values
    return result


def _correlations(variance: Array, covariance: Array) -> Array:
    """Return the correlations, zero on the diagonal."""
    rho = correlation(variance, covariance)
    set_diagonal(rho, 0)
    return rho


def _above(rho: Array, bound: float) -> tuple[Array, ...]:
    """Return batch places, rows and columns of pairs with |ρ| > bound, each once."""
    if bound >= 1:
        return ()
    xp = namespace(rho)
    batch, rows, columns = xp.nonzero(xp.abs(rho) > bound)
    once = rows < columns
    return batch[once], rows[once], columns[once]


def _both_sides(places: tuple[Array, ...]) -> list[tuple[Array, ...]]:
    if not places:
        return []
    batch, rows, columns = places
    return [(batch, rows, columns), (batch, columns, rows)]


def _closed_pairs(
    activation: Activation,
    mean: Array,
    variance: Array,
    covariance: Array,
    places: tuple[Array, ...],
) -> Array:
    """Return the covariances of single pairs in closed form, [pairs]."""
    xp = namespace(mean)
    batch, rows, columns = places
    sides = ((batch, rows), (batch, columns))
    means, variances = (
        xp.stack([part[side] for side in sides], axis=-1) for part in (mean, variance)
    )
    crossed = covariance[places][:, None, None] * constants(1 - np.eye(2), mean)
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
