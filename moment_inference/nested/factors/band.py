"""Cholesky factors of block tridiagonal matrices, many at once."""

from __future__ import annotations

import numpy as np

from moment_inference.nested.factors.blocks import inverse_factors, product, transposed


class Band:
    """M = L Lᵀ of block tridiagonal matrices, [N, g, l, s, s], of l lanes at once."""

    def __init__(self, diagonal: np.ndarray, below: np.ndarray) -> None:
        # L has the inverse of _inverse[i] on its diagonal and _below[i] below.
        self._inverse, self._below = np.empty_like(diagonal), np.empty_like(below)
        rest = diagonal[0]
        for step in range(len(diagonal)):
            self._inverse[step] = inverse_factors(rest)
            if step + 1 < len(diagonal):
                factor = product(below[step], transposed(self._inverse[step]))
                self._below[step] = factor
                rest = diagonal[step + 1] - product(factor, transposed(factor))

    def log_determinant(self) -> np.ndarray:
        """Return log |M|, [g], nan where it is not positive definite."""
        return -2 * np.log(np.einsum("nglii->ngli", self._inverse)).sum((0, 2, 3))

    def spoil(self, points: np.ndarray) -> None:
        """Let every result at some points be nan."""
        self._inverse[:, points] = np.nan

    def forward(self, right: np.ndarray) -> np.ndarray:
        """Return L⁻¹ b, [N, g, l, s, k]."""
        solved = np.empty_like(right)
        for step, inverse in enumerate(self._inverse):
            rest = right[step]
            if step:
                rest = rest - product(self._below[step - 1], solved[step - 1])
            solved[step] = product(inverse, rest)
        return solved

    def backward(self, right: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ z, [N, g, l, s, k]."""
        solved = np.empty_like(right)
        inverse, below = transposed(self._inverse), transposed(self._below)
        for step in range(len(inverse) - 1, -1, -1):
            rest = right[step]
            if step + 1 < len(inverse):
                rest = rest - product(below[step], solved[step + 1])
            solved[step] = product(inverse[step], rest)
        return solved

    def inverse(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the blocks of M⁻¹ on the diagonal and below it (Takahashi's recursion)."""
        diagonal = product(transposed(self._inverse), self._inverse)
        below = np.empty_like(self._below)
        for step in range(len(below) - 1, -1, -1):
            factor = product(self._below[step], self._inverse[step])
            below[step] = -product(diagonal[step + 1], factor)
            diagonal[step] -= product(transposed(factor), below[step])
        return diagonal, below
