"""Invert a Hessian that is dense, or of which only products with vectors are known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, eigh_tridiagonal, solve_triangular
from scipy.sparse.linalg import LinearOperator, cg

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


ACCURACY = 1e-8  # relative error of solutions, in double precision
MOST = 5000  # most products for one solution


class ConjugateGradients:
    """H⁻¹ by conjugate gradients, one solution for each row."""

    is_iterative = True

    def __init__(
        self, product: Callable[[np.ndarray], np.ndarray], units: np.ndarray, precision: float
    ) -> None:
        self._product, self._units = product, units  # the units make H well scaled
        self._accuracy = max(ACCURACY, 100 * precision)
        self._largest = 0.0  # largest curvature so far
        self._null = max(NULL, ROUNDING * precision)

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for parts along flat directions."""
        solutions = [self._solution(row * self._units) for row in rows]
        for solution, is_flat in solutions:
            if is_flat:
                raise Undetermined(solution * self._units)
        return np.stack([solution for solution, _ in solutions]) * self._units

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return the solutions without raising Undetermined for flat directions."""
        solutions = [self._solution(row * self._units) for row in rows]
        return np.stack([solution for solution, _ in solutions]) * self._units

    def _solution(self, row: np.ndarray) -> tuple[np.ndarray, bool]:
        """Return the solution and False; without one a nearly flat direction and True."""
        size = len(row)
        operator = LinearOperator((size, size), self._checked, dtype=np.float64)
        try:
            solution, steps = cg(operator, row, rtol=self._accuracy, maxiter=MOST)
        except Undetermined as flat:
            return flat.direction, True
        return solution, steps > 0

    def _along(self, direction: np.ndarray) -> np.ndarray:
        return self._units * self._product(self._units * direction)

    def _checked(self, direction: np.ndarray) -> np.ndarray:
        product = self._along(direction)
        curvature = float(direction @ product) / float(direction @ direction)
        self._largest = max(self._largest, curvature)
        if abs(curvature) <= self._null * self._largest:
            raise Undetermined(direction)
        if curvature < 0 or not np.isfinite(curvature):
            raise Indefinite(curvature, self._units * direction)
        return product

    def diagonal(self) -> None:
        """Return None: the diagonal is not known."""

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        noise = generator.normal(size=[count, len(self._units)])
        return np.stack([self._root(row) for row in noise]) * self._units

    def _root(self, noise: np.ndarray) -> np.ndarray:
        """Return H^(-1/2) times a vector, by Lanczos' method.

        Source: Simpson, Turner and Pettitt 2008, Fast sampling from a Gaussian Markov
        random field using Krylov subspace approaches.
        """
        length = float(np.linalg.norm(noise))
        basis, diagonal = [noise / length], list[float]()
        off_diagonal = list[float]()
        last = np.zeros_like(noise)
        for step in range(1, len(noise) + 1):
            next_vector = self._checked(basis[-1])
            diagonal.append(float(next_vector @ basis[-1]))
            vectors = np.stack(basis)
            for _ in range(2):  # one orthogonalisation is not enough in floating point
                next_vector = next_vector - vectors.T @ (vectors @ next_vector)
            size = float(np.linalg.norm(next_vector))
            if step % 10 == 0 or size < 1e-12 * diagonal[0] or step == len(noise):
                result = (
                    vectors.T @ _first_column(np.array(diagonal), np.array(off_diagonal)) * length
                )
                if np.linalg.norm(result - last) <= self._accuracy * np.linalg.norm(result):
                    return result
                last = result
            if size < 1e-12 * diagonal[0]:
                return last
            basis.append(next_vector / size)
            off_diagonal.append(size)
        return last


def _first_column(diagonal: np.ndarray, off_diagonal: np.ndarray) -> np.ndarray:
    """Return the first column of the inverse root of a tridiagonal matrix."""
    values, directions = eigh_tridiagonal(diagonal, off_diagonal)
    return directions @ (directions[0] / np.sqrt(np.maximum(values, np.finfo(float).tiny)))
