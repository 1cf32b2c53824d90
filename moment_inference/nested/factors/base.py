"""What a factorisation of precisions gives, whatever its structure."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from moment_inference.nested.factors.border_parts import BorderParts
from moment_inference.nested.sparse import Pattern, Sparse
from moment_inference.nested.sparse.grams import gram_of


class Factors(ABC):
    """M = L Lᵀ at every grid point, for symmetric positive definite M [g, d, d].

    A matrix that is not positive definite spoils its own point only: ``is_definite`` is false
    there and every result is nan.

    Attributes:
        is_definite: whether each matrix is positive definite, [g].
        log_determinant: log |M|, [g].
    """

    is_definite: np.ndarray
    log_determinant: np.ndarray

    @abstractmethod
    def solve_columns(self, right: np.ndarray) -> np.ndarray:
        """Return M⁻¹ b, [g, d, k]."""

    @abstractmethod
    def draws(self, noise: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ z: draws from N(0, M⁻¹), [g, d, k]."""

    @abstractmethod
    def inverse_at(self, pattern: Pattern) -> np.ndarray:
        """Return entries of M⁻¹, [g, e].

        Raises:
            ValueError: if an entry lies elsewhere.
        """

    def solve(self, right: np.ndarray) -> np.ndarray:
        """Return M⁻¹ b, of b's shape."""
        columns = right if right.ndim == 3 else right[:, :, None]
        return self.solve_columns(columns).reshape(-1, *right.shape[1:])

    def variances(self, matrix: Sparse) -> np.ndarray:
        """Return diag(A M⁻¹ Aᵀ), [g, n], by entries of the inverse.

        Raises:
            ValueError: if a row of A has columns that M does not couple.
        """
        gram = gram_of(matrix.pattern)
        return gram.quadratic(matrix.values, self.inverse_at(gram.support))

    def marginal_variances(self) -> np.ndarray:
        """Return diag(M⁻¹), [g, d]."""
        everyone = np.arange(self.size)
        return self.inverse_at(Pattern.of(everyone, everyone, (self.size, self.size)))

    def columns(self, matrix: Sparse, start: int, stop: int) -> np.ndarray:
        """Return some columns of A M⁻¹ Aᵀ, [g, n, stop − start]."""
        return matrix.times(self.crossed(matrix, start, stop))

    def crossed(self, matrix: Sparse, start: int, stop: int) -> np.ndarray:
        """Return some columns of M⁻¹ Aᵀ, [g, d, stop − start]."""
        right = matrix.dense_rows(start, stop)
        return self.solve(np.broadcast_to(right, (len(self.is_definite), *right.shape[1:])))

    def block_covariances(self, indices: np.ndarray) -> np.ndarray:
        """Return the covariances of small sets of coordinates, [g, m, k, k].

        Raises:
            ValueError: if M does not couple the coordinates of a set.
        """
        shape = (*indices.shape, indices.shape[1])
        rows = np.broadcast_to(indices[:, :, None], shape).reshape(-1)
        columns = np.broadcast_to(indices[:, None, :], shape).reshape(-1)
        pattern = Pattern.of(rows, columns, (self.size, self.size))
        places = np.searchsorted(pattern.keys, rows * self.size + columns)
        return np.take(self.inverse_at(pattern), places, axis=1).reshape(-1, *shape)

    @abstractmethod
    def border_parts(self, matrix: Sparse, most: int) -> BorderParts | None:
        """Return A M⁻¹ Aᵀ as U Uᵀ but for pairs in one component; None if U is too wide."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of coordinates, d."""
