"""Invert a Hessian: dense, an arrow, or of which only products with vectors are known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.linalg import LinAlgError

from moment_inference.errors import Indefinite, Undetermined
from moment_inference.host import Linearised

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
        self.has_flat_directions = self._flat.shape[1] > 0

    def _without_flat(self, scaled: np.ndarray) -> np.ndarray:
        values, directions = scipy.linalg.eigh(scaled)
        least = self._null * values[-1]
        if values[-1] <= 0 or values[0] < -FLAT * values[-1]:
            raise Indefinite(values[0], self._units * directions[:, 0])
        flat = values <= least
        self._flat = directions[:, flat]
        return directions[:, ~flat] / np.sqrt(values[~flat])

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for flat directions."""
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
        """Return the diagonal of H⁻¹, [n]; infinite along flat directions."""
        free = (np.abs(self._flat) > SHARE).any(1)
        return np.where(free, np.inf, (self.root**2).sum(1))

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        return generator.normal(size=[count, self.root.shape[1]]) @ self.root.T


def _inverse_root(matrix: np.ndarray, least: float) -> np.ndarray:
    """Return R, R Rᵀ = matrix⁻¹; raise LinAlgError unless positive definite."""
    factor = scipy.linalg.cholesky(matrix, lower=True)
    root = scipy.linalg.solve_triangular(factor, np.eye(len(matrix)), lower=True).T
    largest = np.linalg.norm(matrix, 1) * np.linalg.norm(root, 2) ** 2
    if not largest * least < 1:
        raise LinAlgError("singular")
    return root


ACCURACY = 1e-8  # relative error of solutions, in double precision
MOST = 5000  # most products for one solution
FLAT_DIRECTIONS = 3  # most that are left out of one row


class ConjugateGradients:
    """H⁻¹ by conjugate gradients, one solution for each row."""

    is_iterative = True
    has_flat_directions = False  # none is known before a row meets it

    def __init__(
        self, product: Callable[[np.ndarray], np.ndarray], units: np.ndarray, precision: float
    ) -> None:
        self._product, self._units = product, units  # the units make H well scaled
        self._accuracy = max(ACCURACY, 100 * precision)
        self._largest = 0.0  # largest curvature so far
        self._null = max(NULL, ROUNDING * precision)

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for flat directions."""
        solutions = []
        for row in rows:
            solution, flat = self._solution(row * self._units)
            if flat is not None:
                raise Undetermined(flat * self._units)
            solutions.append(solution)
        return np.stack(solutions) * self._units

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return rows times H⁻¹ without their parts along flat directions."""
        return np.stack([self._without_flat(row * self._units) for row in rows]) * self._units

    def _without_flat(self, row: np.ndarray) -> np.ndarray:
        solution, flat = self._solution(row)
        # Conjugate gradients meet one flat direction, the part of the row along all of
        # them; what rounding leaves of it may take a further one.
        for _ in range(FLAT_DIRECTIONS):
            if flat is None or flat is solution:
                break
            row = row - flat * (flat @ row) / (flat @ flat)
            solution, flat = self._solution(row)
        return solution

    def _solution(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the solution and None; without one a nearly flat direction."""
        from scipy.sparse.linalg import LinearOperator, cg

        size = len(row)
        operator = LinearOperator((size, size), self._checked, dtype=np.float64)
        try:
            solution, steps = cg(operator, row, rtol=self._accuracy, maxiter=MOST)
        except Undetermined as undetermined:
            return np.zeros(size), undetermined.direction
        return solution, solution if steps > 0 else None

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
    values, directions = scipy.linalg.eigh_tridiagonal(diagonal, off_diagonal)
    return directions @ (directions[0] / np.sqrt(np.maximum(values, np.finfo(float).tiny)))


Product = Callable[[np.ndarray], np.ndarray]
STRUCTURE_TOLERANCE = (
    1e-6  # relative error of a product up to which H counts as an arrow, in double precision
)


@dataclass(frozen=True)
class Partition:
    """Parameters that are local to an element of a plate, and the others."""

    local: np.ndarray  # their places, [elements, k]
    border: np.ndarray  # indices of the others, [g]

    @classmethod
    def by(cls, elements: np.ndarray) -> Partition | None:
        """Return the partition by parameters' elements (-1: global), or None."""
        (inside,) = np.nonzero(elements >= 0)
        order = inside[np.argsort(elements[inside], kind="stable")]
        count = elements.max(initial=-1) + 1
        if count < 2 or (np.bincount(elements[inside]) * count != len(inside)).any():
            return None
        return cls(order.reshape(count, -1), np.nonzero(elements < 0)[0])

    @property
    def products(self) -> int:
        """Return how many products give the whole matrix."""
        return self.local.shape[1] + len(self.border)


class Arrow:
    """H⁻¹ by the Schur complement of the local blocks."""

    is_iterative = False
    has_flat_directions = False

    def __init__(
        self, blocks: np.ndarray, sides: np.ndarray, corner: np.ndarray, partition: Partition
    ) -> None:
        # Blocks [elements, k, k], sides [elements, k, g] and corner [g, g] of H.
        self.partition = partition
        self._size = partition.local.size + partition.border.size
        try:
            factors = np.linalg.cholesky(blocks)
        except LinAlgError:
            raise self._downwards_in(blocks) from None
        self._inverse = _inverse_of_lower(factors)
        self._whitened = self._inverse @ sides
        together = self._whitened.reshape(-1, len(corner))
        schur = corner - together.T @ together
        try:
            self._schur = scipy.linalg.cholesky(schur, lower=True) if len(schur) else schur
        except LinAlgError:
            raise self._downwards_at(schur) from None

    @classmethod
    def of(cls, product: Product, partition: Partition, precision: float) -> Arrow | None:
        """Return the arrow matrix that products with H reveal; None if H is no arrow."""
        local, border = partition.local, partition.border
        size = local.size + border.size

        def column_product(indices: np.ndarray) -> np.ndarray:
            direction = np.zeros(size)
            direction[indices] = 1
            return product(direction)

        columns = [column_product(indices)[local] for indices in local.T]
        rows = [column_product(np.array([index])) for index in border]
        blocks = np.stack(columns, -1)
        blocks = (blocks + np.swapaxes(blocks, 1, 2)) / 2
        sides = np.stack([row[local] for row in rows], -1) if rows else np.zeros((*local.shape, 0))
        corner = np.array([row[border] for row in rows]).reshape(len(border), -1)
        probe = np.random.default_rng(0).normal(size=size) / np.sqrt(
            _diagonal(blocks, corner, partition)
        )
        expected, actual = _arrow_product(blocks, sides, corner, partition, probe), product(probe)
        if np.linalg.norm(expected - actual) > max(
            STRUCTURE_TOLERANCE, precision**0.5
        ) * np.linalg.norm(actual):
            return None
        return cls(blocks, sides, (corner + corner.T) / 2, partition)

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹."""
        partition = self.partition
        inner = np.einsum("eij,rej->rei", self._inverse, rows[:, partition.local])
        outer = rows[:, partition.border] - np.einsum("rei,eig->rg", inner, self._whitened)
        outer = self._from_schur(self._whitened_border(outer.T)).T
        return self._joined(inner - np.einsum("eig,rg->rei", self._whitened, outer), outer)

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return the same as :meth:`solve`: no direction is flat."""
        return self.solve(rows)

    @property
    def probe_count(self) -> int:
        """Return how many directions :meth:`blocks` pushes through a functional."""
        return self.partition.products + self.partition.local.shape[1] + 1

    def blocks(self, functional: Linearised, part: slice, width: int) -> np.ndarray | None:
        """Return diagonal blocks of G H⁻¹ Gᵀ; None if quantities mix elements."""
        own, elements, border = self._jacobian_parts(functional)
        probe = np.random.default_rng(0).normal(size=self._size)
        inner, outer = probe[self.partition.local], probe[self.partition.border]
        expected = (own * inner[elements]).sum(1) + border @ outer
        (actual,) = functional.jvp(probe[None])
        if np.linalg.norm(expected - actual) > STRUCTURE_TOLERANCE * np.linalg.norm(actual):
            return None
        own, elements, border = own[part], elements[part], border[part]
        whitened = np.einsum("dij,dj->di", self._inverse[elements], own)
        rest = border - np.einsum("di,dig->dg", whitened, self._whitened[elements])
        among = elements.reshape(-1, width)
        own_part = _products(whitened, width) * (among[:, :, None] == among[:, None])
        return own_part + _products(self._whitened_border(rest.T).T, width)

    def _jacobian_parts(self, functional: Linearised) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return G by own elements [d, k], these [d], and G by the border [d, g]."""
        local, border = self.partition.local, self.partition.border
        # Push ones, and the numbers of the elements: the ratio of the results tells the
        # element.
        numbers = np.arange(1.0, len(local) + 1)
        own, weighted = [], []
        for indices in local.T:
            rows = np.zeros([2, self._size])
            rows[0, indices], rows[1, indices] = 1, numbers
            once, numbered = functional.jvp(rows)
            own.append(once)
            weighted.append(numbered)
        largest = np.abs(own).argmax(0)[None]
        most, number = (
            np.take_along_axis(np.array(part), largest, 0)[0] for part in (own, weighted)
        )
        numbers_found = np.rint(np.divide(number, most, out=np.ones_like(most), where=most != 0))
        elements = np.clip(numbers_found.astype(int) - 1, 0, len(local) - 1)
        rows = np.zeros([len(border), self._size])
        rows[np.arange(len(border)), border] = 1
        return np.stack(own, -1), elements, functional.jvp(rows).T

    def diagonal(self) -> np.ndarray:
        """Return the diagonal of H⁻¹, [n]."""
        result = np.empty(self._size)
        root = self._from_schur(np.eye(len(self._schur)))
        result[self.partition.border] = (root**2).sum(1)
        sides = np.einsum("eji,ejg->eig", self._inverse, self._whitened) @ root
        result[self.partition.local] = (self._inverse**2).sum(1) + (sides**2).sum(2)
        return result

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        outer = self._from_schur(generator.normal(size=[len(self._schur), count])).T
        inner = generator.normal(size=[count, *self.partition.local.shape])
        return self._joined(inner - np.einsum("eig,rg->rei", self._whitened, outer), outer)

    def _whitened_border(self, columns: np.ndarray) -> np.ndarray:
        return (
            scipy.linalg.solve_triangular(self._schur, columns, lower=True)
            if len(columns)
            else columns
        )

    def _from_schur(self, columns: np.ndarray) -> np.ndarray:
        if not len(columns):
            return columns
        return scipy.linalg.solve_triangular(self._schur, columns, lower=True, trans="T")

    def _joined(self, whitened: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """Return rows [k, n] of local parts, no longer whitened, and the border."""
        result = np.empty([len(outer), self._size])
        result[:, self.partition.local] = np.einsum("eji,rej->rei", self._inverse, whitened)
        result[:, self.partition.border] = outer
        return result

    def _downwards_in(self, blocks: np.ndarray) -> Indefinite:
        values, directions = np.linalg.eigh(blocks)
        worst = int(values[:, 0].argmin())
        direction = np.zeros(self._size)
        direction[self.partition.local[worst]] = directions[worst, :, 0]
        return Indefinite(values[worst, 0], direction)

    def _downwards_at(self, schur: np.ndarray) -> Indefinite:
        values, directions = scipy.linalg.eigh(schur)
        outer = directions[:, :1].T
        inner = -np.einsum("eig,rg->rei", self._whitened, outer)
        return Indefinite(values[0], self._joined(inner, outer)[0])


def _inverse_of_lower(factors: np.ndarray) -> np.ndarray:
    """Return the inverses of lower triangular matrices [elements, k, k], all at once."""
    result = np.zeros_like(factors)
    for row in range(factors.shape[-1]):
        result[:, row, row] = 1
        for before in range(row):
            result[:, row] -= factors[:, row, before, None] * result[:, before]
        result[:, row] /= factors[:, row, row, None]
    return result


def _products(rows: np.ndarray, width: int) -> np.ndarray:
    """Return the scalar products of rows within blocks, [blocks, width, width]."""
    parts = rows.reshape(-1, width, rows.shape[1])
    return parts @ np.swapaxes(parts, 1, 2)


def _diagonal(blocks: np.ndarray, corner: np.ndarray, partition: Partition) -> np.ndarray:
    """Return the absolute values on the diagonal, with ones in place of zeros."""
    result = np.empty(partition.local.size + partition.border.size)
    result[partition.local] = np.abs(np.diagonal(blocks, axis1=1, axis2=2))
    result[partition.border] = np.abs(np.diagonal(corner))
    return np.where(result > 0, result, 1)


def _arrow_product(
    blocks: np.ndarray,
    sides: np.ndarray,
    corner: np.ndarray,
    partition: Partition,
    vector: np.ndarray,
) -> np.ndarray:
    inner, outer = vector[partition.local], vector[partition.border]
    result = np.empty_like(vector)
    result[partition.local] = np.einsum("eij,ej->ei", blocks, inner) + sides @ outer
    result[partition.border] = np.einsum("eig,ei->g", sides, inner) + corner @ outer
    return result
