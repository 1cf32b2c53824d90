"""Dense Cholesky factors, one grid point after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.linalg import lapack

from moment_inference.nested.factors.base import Factors
from moment_inference.nested.factors.border_parts import BorderParts
from moment_inference.nested.sparse import Pattern, Sparse
from moment_inference.nested.sparse.grams import dense_of

KEPT = 2**25  # most numbers of inverses that are kept
DENSE_GAIN = 5  # how much faster a number of a dense product is than a pair of entries


class DenseFactors(Factors):
    """M = L Lᵀ with dense L."""

    def __init__(self, matrix: Sparse) -> None:
        points, (d, _) = len(matrix.values), matrix.shape
        self._lower = np.empty((points, d, d))
        for point in range(points):
            self._lower[point] = lower_factor(dense_of(matrix.pattern, matrix.values[[point]])[0])
        with np.errstate(invalid="ignore"):
            diagonal = np.einsum("gii->gi", self._lower)
            self.log_determinant = 2 * np.log(diagonal).sum(1)
        self.is_definite = np.isfinite(self.log_determinant)
        self._inverses: list[np.ndarray] | None = None

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        return self._lower.shape[1]

    def solve_columns(self, right: np.ndarray) -> np.ndarray:
        """Return M⁻¹ b, [g, d, k]."""
        return self._by_point(lapack.dpotrs, right)

    def draws(self, noise: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ z, [g, d, k]."""
        return self._by_point(lapack.dtrtrs, noise)

    def inverse_at(self, pattern: Pattern) -> np.ndarray:
        """Return entries of M⁻¹, [g, e]."""
        entries = np.empty((len(self._lower), pattern.size))
        for at_point, inverse in zip(entries, self._each_inverse(), strict=True):
            at_point[:] = inverse.reshape(-1)[pattern.keys]
        return entries

    def crossed(self, matrix: Sparse, start: int, stop: int) -> np.ndarray:
        """Return some columns of M⁻¹ Aᵀ, [g, d, stop − start], by inverses that are kept."""
        if self._lower.size > KEPT:
            return super().crossed(matrix, start, stop)
        rows = matrix.rows_between(start, stop)
        crossed = np.empty((len(self._lower), stop - start, self.size))
        is_sparse = DENSE_GAIN * rows.pattern.size < self.size * len(crossed[0])
        values = np.broadcast_to(rows.values, (len(crossed), rows.pattern.size))
        for result, inverse, at_point in zip(crossed, self._each_inverse(), values, strict=True):
            if is_sparse:
                result[:] = rows.pattern.times(at_point[None], inverse[None])[0]
            else:
                np.matmul(dense_of(rows.pattern, at_point[None])[0], inverse, out=result)
        return np.swapaxes(crossed, 1, 2)

    def border_parts(self, matrix: Sparse, most: int) -> BorderParts | None:
        """Return A M⁻¹ Aᵀ as U Uᵀ; None if U is too wide."""
        if self.size > most:
            return None
        roots = self.draws(np.broadcast_to(np.eye(self.size), self._lower.shape))
        products = np.moveaxis(matrix.times(roots), 2, 0)
        nowhere = np.full(self.size, -1)
        return BorderParts(matrix, products, np.moveaxis(roots, 2, 0), nowhere, self.solve)

    def _by_point(self, solve: Callable[..., Any], right: np.ndarray) -> np.ndarray:
        """Return what a routine of LAPACK makes of Lᵀ and columns."""
        solved = np.empty((len(self._lower), *right.shape[1:]))
        if not solved.size:
            return solved
        right = np.broadcast_to(right, solved.shape)
        for result, factor, at_point in zip(solved, self._lower, right, strict=True):
            result[:] = solve(factor.T, at_point, lower=0)[0]
        return solved

    def _each_inverse(self) -> Iterator[np.ndarray]:
        """Return M⁻¹ of one point after another, kept if they are small."""
        if self._inverses is not None:
            return iter(self._inverses)
        inverses = (_inverse(factor) for factor in self._lower)
        if self._lower.size > KEPT:
            return inverses
        self._inverses = list(inverses)
        return iter(self._inverses)


def lower_factor(matrix: np.ndarray) -> np.ndarray:
    """Return L of M = L Lᵀ, [d, d], nan if M is not positive definite."""
    factor, failed_at = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed_at or not np.isfinite(factor.diagonal()).all():
        return np.full_like(matrix, np.nan)
    return factor


def _inverse(lower: np.ndarray) -> np.ndarray:
    """Return (L Lᵀ)⁻¹, symmetric."""
    if not lower.size:
        return lower
    half = np.tril(lapack.dpotri(lower, lower=1)[0])
    return half + np.tril(half, -1).T
