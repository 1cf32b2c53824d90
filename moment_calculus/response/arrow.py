"""Invert a Hessian whose local parameters interact only through a few global ones.

Parameters of different elements of a plate interact only through global ones, so H is an
arrow: blocks along the diagonal with a border. As many products with H as a block and the
border are wide give all of it; one more, with a random direction, checks the structure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from moment_calculus.response.errors import Indefinite
from moment_calculus.response.problem import Functional

Product = Callable[[np.ndarray], np.ndarray]
STRUCTURE_TOLERANCE = (
    1e-6  # relative error of a product up to which H counts as an arrow, in double precision
)


@dataclass(frozen=True)
class Partition:
    """Parameters that are local to an element of a plate, and the others."""

    local: np.ndarray  # their places, [elements, k]
    border: np.ndarray  # places of the others, [g]

    @classmethod
    def by(cls, elements: np.ndarray) -> Partition | None:
        """Return the partition by element of each parameter (-1: global); None if sizes differ."""
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
            self._schur = cholesky(schur, lower=True) if len(schur) else schur
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
        """Return the number of directions that :meth:`blocks` pushes through a functional."""
        return self.partition.products + self.partition.local.shape[1] + 1

    def blocks(self, functional: Functional, part: slice, width: int) -> np.ndarray | None:
        """Return diagonal blocks of G H⁻¹ Gᵀ; None unless each quantity depends on one element."""
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

    def _jacobian_parts(self, functional: Functional) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return G by a quantity's own element [d, k], that element [d], G by the border [d, g]."""
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
        return solve_triangular(self._schur, columns, lower=True) if len(columns) else columns

    def _from_schur(self, columns: np.ndarray) -> np.ndarray:
        if not len(columns):
            return columns
        return solve_triangular(self._schur, columns, lower=True, trans="T")

    def _joined(self, whitened: np.ndarray, outer: np.ndarray) -> np.ndarray:
        """Return rows [k, n] of whitened local parts, times the inverse factors, and the border."""
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
        values, directions = eigh(schur)
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
