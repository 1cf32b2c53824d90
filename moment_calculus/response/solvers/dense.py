"""Invert a dense Hessian."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from moment_calculus.response.errors import Indefinite, Undetermined

NULL = 1e-12  # curvature, relative to the largest, that may be nothing but rounding
FLAT = 1e-4  # relative negative curvature that redundant parameters have near an optimum
ROUNDING = 8.0  # the same limit in rounding units of the elements
SHARE = 1e-5  # share of a quantity's slope that may lie along flat directions


class Dense:
    """H⁻¹ = R Rᵀ of a dense Hessian, scaled by the curvature of each parameter.

    Flat directions of H, which redundant parameters have, are left out; :meth:`solve`
    raises for a quantity that depends on one of them.
    """

    is_iterative = False

    def __init__(self, matrix: np.ndarray, precision: float) -> None:
        diagonal = np.diagonal(matrix)
        self._units = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
        scaled = self._units[:, None] * (matrix + matrix.T) / 2 * self._units
        self._null = max(NULL, ROUNDING * precision) * len(matrix)
        self._flat = np.zeros([len(matrix), 0])
        try:
            inverse = _inverse_root(scaled, self._null)
        except LinAlgError:
            inverse = self._without_flat(scaled)
        self.root = self._units[:, None] * inverse

    def _without_flat(self, scaled: np.ndarray) -> np.ndarray:
        values, directions = eigh(scaled)
        least = self._null * values[-1]
        if values[-1] <= 0 or values[0] < -FLAT * values[-1]:
            raise Indefinite(values[0], self._units * directions[:, 0])
        flat = values <= least
        self._flat = directions[:, flat]
        return directions[:, ~flat] / np.sqrt(values[~flat])

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for parts along flat directions."""
        self._check(rows)
        return self.solve_ignoring_flat(rows)

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return rows times H⁻¹ without their parts along flat directions."""
        return rows @ self.root @ self.root.T

    def _check(self, rows: np.ndarray) -> None:
        along = (rows * self._units) @ self._flat
        sizes = np.linalg.norm(rows * self._units, axis=1, keepdims=True)
        if (np.abs(along) > SHARE * sizes).any():
            worst = np.unravel_index(np.abs(along).argmax(), along.shape)[1]
            raise Undetermined(self._units * self._flat[:, worst])

    def diagonal(self) -> np.ndarray:
        """Return the diagonal of H⁻¹, [n]; infinite for parameters that flat directions move."""
        free = (np.abs(self._flat) > SHARE).any(1)
        return np.where(free, np.inf, (self.root**2).sum(1))

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        return generator.normal(size=[count, self.root.shape[1]]) @ self.root.T


def _inverse_root(matrix: np.ndarray, least: float) -> np.ndarray:
    """Return R with R Rᵀ = matrix⁻¹; raise LinAlgError unless it is safely positive definite."""
    factor = cholesky(matrix, lower=True)
    root = solve_triangular(factor, np.eye(len(matrix)), lower=True).T
    largest = np.linalg.norm(matrix, 1) * np.linalg.norm(root, 2) ** 2
    if not largest * least < 1:
        raise LinAlgError("singular")
    return root
