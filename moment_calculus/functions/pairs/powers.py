"""Sums Σ ρⁿ g_n(x_i) g_n(x_j) of all pairs and their gradient, in pieces that fit a cache."""

from __future__ import annotations

from collections.abc import Iterator

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import plus_product, threads
from moment_calculus.numerics.special import namespace

ROOM = 1 << 16  # matrix entries of a piece, for each thread that works on it


def summed(terms: Array, rho: Array) -> tuple[Array, Array]:
    """Return the sums of g_n [order, batch, d] and ρ [batch, d, d], and their derivatives by ρ."""
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


def gathered(terms: Array, rho: Array, weights: Array) -> Array:
    """Return Σ_j (w_ij + w_ji) ρ_ijⁿ g_n(x_j), [order, batch, d]: the gradient by g_n(x_i)."""
    xp = namespace(rho)
    found = xp.empty_like(terms)
    for batch, rows in _pieces(rho.shape, ROOM * threads(rho)):
        part, right = rho[batch, rows], terms[:, batch, None, :]
        power = weights[batch, rows] + weights.mT[batch, rows]
        for n in range(len(terms)):
            power = power * part
            found[n, batch, rows] = xp.sum(power * right[n], axis=-1)
    return found


def _pieces(shape: tuple[int, ...], room: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of the batch with all rows, or of one matrix with some of its rows."""
    batch, rows, size = shape
    count = max(1, room // (rows * size))
    height = max(1, min(rows, room // size))
    for start in range(0, batch, count):
        for row in range(0, rows, height):
            yield slice(start, start + count), slice(row, row + height)
