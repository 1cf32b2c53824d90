"""Sums over pairs of predictors that meet through a small border, by tensors of its roots.

Covariances are U Uᵀ but for near pairs, and (U_i · U_j)ⁿ / n! = Σ_α U_i^α U_j^α / α! over the
monomials α of degree n: sums over all pairs are squares of sums over predictors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np

from moment_inference.nested.cumulant.derivatives import ORDERS, Derivatives, Sums, tail
from moment_inference.nested.factors.border_parts import BorderParts, Near

BORDER = 6  # most columns of U
DEGREE = 40  # most orders of exponentials
NEGLIGIBLE = 1e-12  # relative to the pairs of predictors with themselves


def order_of(derivatives: Derivatives, parts: BorderParts, variances: np.ndarray) -> int | None:
    """Return the last order of exponentials that counts; None where sums of all pairs cost less."""
    count, rates = derivatives.rates.shape[1], np.abs(derivatives.rates)
    sizes = rates * np.sqrt((parts.predictors**2).sum(0))
    factors = np.abs(derivatives.factors)
    own = (factors**2 * tail(rates**2 * variances)).sum(1)
    work, order = parts.pairs / max(count, 1), 2
    while order < DEGREE:
        order += 1
        work += math.comb(len(parts.predictors) + order, order) / 2
        if 4 * work > count:
            return None
        rest = (factors * sizes ** (order + 1)).sum(1) ** 2 / math.factorial(order + 1)
        if order >= ORDERS[-1] and not (rest > NEGLIGIBLE * own).any():
            return order
    return None


def sums_through_border(derivatives: Derivatives, parts: BorderParts, order: int) -> Sums:
    """Return the sums, with exponentials up to an order."""
    (points, count), size = derivatives.rates.shape, parts.matrix.shape[1]
    sums = Sums.zeros(points, count, size)
    for point in range(points):
        _add_far(sums, derivatives, parts, point, order)
    for predictors, coordinates in parts.near():
        _add_near(sums, derivatives, parts, predictors)
        _add_near_third(sums, derivatives, parts, coordinates)
    return sums


def _add_far(
    sums: Sums, derivatives: Derivatives, parts: BorderParts, point: int, order: int
) -> None:
    """Add all pairs, as if covariances were U Uᵀ."""
    for degree, weights, powers in _monomials(parts.predictors[:, point], order):
        here, further = (derivatives.order(n, point) for n in (degree, degree + 1))
        tensor = powers @ here
        sums.evidence[point] += weights @ tensor**2 / 2
        sums.slopes[point] += further * ((weights * tensor) @ powers)
        if degree == ORDERS[0]:
            third = weights * tensor * math.factorial(degree)
    for _, _, powers in _monomials(parts.coordinates[:, point], ORDERS[0]):
        sums.third[point] += third @ powers


def _monomials(roots: np.ndarray, order: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Return for degrees from 3 up to an order 1 / α! and U^α of its monomials α, [m], [m, n]."""
    powers = np.ones((1, roots.shape[1]))
    for degree in range(1, order + 1):
        weights, before = _of_degree(len(roots), degree)
        products = np.empty((len(weights), roots.shape[1]))
        start = 0
        for root, count in zip(roots, before, strict=True):
            np.multiply(powers[:count], root, out=products[start : start + count])
            start += count
        powers = products
        if degree >= ORDERS[0]:
            yield degree, weights, powers


@cache
def _of_degree(dimensions: int, degree: int) -> tuple[np.ndarray, list[int]]:
    """Return 1 / α! of a degree's monomials α, and how many of one less each variable multiplies.

    Monomials are in the order of their last variables: it multiplies the first ones only.
    """
    before = [math.comb(last + degree - 1, last) for last in range(dimensions)]
    exponents = _exponents(dimensions, degree)
    factorials = np.array([math.factorial(n) for n in range(degree + 1)], float)
    return 1 / factorials[exponents].prod(1), before


def _exponents(dimensions: int, degree: int) -> np.ndarray:
    """Return the monomials of a degree by their exponents, [m, dimensions]."""
    if degree == 0:
        return np.zeros((1, dimensions), int)
    lower, units = _exponents(dimensions, degree - 1), np.eye(dimensions, dtype=int)
    parts = [np.zeros((0, dimensions), int)]
    for last, unit in enumerate(units):
        parts.append(lower[: math.comb(last + degree - 1, last)] + unit)
    return np.concatenate(parts)


def _through_border(left: np.ndarray, near: Near, right: np.ndarray) -> np.ndarray:
    """Return U Uᵀ of near pairs, [g, m, k]."""
    products = np.zeros(near.covariances.shape)
    for of_rows, of_partners in zip(left, right, strict=True):
        products += of_rows[:, near.rows, None] * of_partners[:, near.partners]
    return products


def _add_near(sums: Sums, derivatives: Derivatives, parts: BorderParts, near: Near) -> None:
    """Add what near pairs are beyond those of U Uᵀ."""
    far = _through_border(parts.predictors, near, parts.predictors)
    kinds = derivatives.is_exponential
    is_closed = kinds[near.rows, None] & kinds[near.partners]
    if not is_closed.all():
        _add_near_series(sums, derivatives, near, far, ~is_closed)
    if is_closed.any():
        _add_near_exponentials(sums, derivatives, near, far)


def _add_near_exponentials(
    sums: Sums, derivatives: Derivatives, near: Near, far: np.ndarray
) -> None:
    """Add pairs of exponentials; others have no factors here."""
    rates, factors = derivatives.rates, derivatives.factors
    scale = rates[:, near.rows, None] * rates[:, near.partners]
    difference = tail((near.covariances + far) * scale)
    difference -= tail(far * scale)
    total = np.einsum("gmk,gmk->gm", difference, factors[:, near.partners])
    total *= factors[:, near.rows]
    sums.evidence[:] += total.sum(1) / 2
    sums.slopes[:, near.rows] += rates[:, near.rows] * total


def _add_near_series(
    sums: Sums, derivatives: Derivatives, near: Near, far: np.ndarray, is_here: np.ndarray
) -> None:
    """Add some pairs by the orders that any likelihood has."""
    covariances = near.covariances + far
    power, power_far = covariances**2, far**2
    for order in ORDERS:
        power *= covariances
        power_far *= far
        here, further = (derivatives.order(n) for n in (order, order + 1))
        difference = (power - power_far) * is_here
        total = np.einsum("gmk,gmk->gm", difference, here[:, near.partners])
        total /= math.factorial(order)
        sums.evidence[:] += (total * here[:, near.rows]).sum(1) / 2
        sums.slopes[:, near.rows] += further[:, near.rows] * total


def _add_near_third(sums: Sums, derivatives: Derivatives, parts: BorderParts, near: Near) -> None:
    """Add what third moments of coordinates have by the predictors of their component."""
    far = _through_border(parts.coordinates, near, parts.predictors)
    difference = (near.covariances + far) ** 3
    difference -= far**3
    terms = derivatives.order(3)[:, near.partners]
    sums.third[:, near.rows] += np.einsum("gmk,gmk->gm", difference, terms)
