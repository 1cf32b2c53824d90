"""Cholesky factors of bands with a border."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from moment_inference.nested.factors.band import Band
from moment_inference.nested.factors.base import Factors
from moment_inference.nested.factors.blocks import inverse_factors
from moment_inference.nested.factors.border_parts import BorderParts
from moment_inference.nested.factors.chain import Chain
from moment_inference.nested.factors.ordering import Group
from moment_inference.nested.factors.places import Places
from moment_inference.nested.sparse import Pattern, Sparse


class BorderedFactors(Factors):
    """M = [[K, U], [Uᵀ, B]] with bands K: L = [[L_K, 0], [Wᵀ, L_S]], W = L_K⁻¹ U, S = B − Wᵀ W.

    Memory and time are linear in the number of components.
    """

    def __init__(self, matrix: Sparse, places: Places) -> None:
        self._places, self._points = places, len(matrix.values)
        self._bands = [
            _band(*_split(blocks, group))
            for blocks, group in zip(self._blocks(matrix), places.ordering.groups, strict=True)
        ]
        coupling, border = self._border_parts(matrix)
        self._coupling = self._by_band(_forward, coupling)  # W
        schur = border - np.swapaxes(self._coupling, 1, 2) @ self._coupling
        self._border = inverse_factors(schur) if schur.size else schur  # L_S⁻¹
        with np.errstate(invalid="ignore"):
            diagonal = np.einsum("gii->gi", self._border)
            bands = sum(band.log_determinant() for band in self._bands)
            self.log_determinant = bands - 2 * np.log(diagonal).sum(1)
        self.is_definite = np.isfinite(self.log_determinant)
        for band in self._bands:
            band.spoil(~self.is_definite)

    @property
    def size(self) -> int:
        """The number of coordinates, d."""
        return len(self._places.is_border)

    def solve_columns(self, right: np.ndarray) -> np.ndarray:
        """Return M⁻¹ b, [g, d, k]."""
        inner, border = self._split(right)
        inner = self._by_band(_forward, inner)
        border = self._border @ (border - np.swapaxes(self._coupling, 1, 2) @ inner)
        return self._backward(inner, border)

    def draws(self, noise: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ z, [g, d, k]."""
        return self._backward(*self._split(noise))

    def _backward(self, inner: np.ndarray, border: np.ndarray) -> np.ndarray:
        border = np.swapaxes(self._border, 1, 2) @ border
        if border.shape[1]:
            inner = inner - self._coupling @ border
        return self._joined(self._by_band(_backward, inner), border)

    def inverse_at(self, pattern: Pattern) -> np.ndarray:
        """Return entries of M⁻¹, [g, e]."""
        entries = np.take(self._band_inverse, self._places.blocks(pattern), axis=1)
        roots, columns = self._border_roots, self._border_columns.reshape(self._points, -1)
        inner, rows, others, outer, in_columns = self._inner_and_outer(pattern)
        added = np.zeros((self._points, len(inner)))
        for root in np.swapaxes(roots, 0, 1):
            added += np.take(root, rows, axis=1) * np.take(root, others, axis=1)
        entries[:, inner] += added
        entries[:, outer] = np.take(columns, in_columns, axis=1)
        return entries

    def border_parts(self, matrix: Sparse, most: int) -> BorderParts | None:
        """Return A M⁻¹ Aᵀ as U Uᵀ but for pairs in one component; None if U is too wide."""
        if len(self._places.ordering.border) > most:
            return None
        roots = np.swapaxes(self._border_roots, 0, 1)
        products = np.empty((len(roots), self._points, matrix.shape[0]))
        for product, root in zip(products, roots, strict=True):
            product[:] = matrix.times(root)
        return BorderParts(
            matrix, products, roots, self._places.ordering.components, self._without_border
        )

    def _without_border(self, right: np.ndarray) -> np.ndarray:
        """Return K⁻¹ b, [g, d, k], zero in the border."""
        inner = self._by_band(_forward, self._split(right)[0])
        inner = self._by_band(_backward, inner)
        border = np.zeros((self._points, len(self._places.ordering.border), right.shape[2]))
        return self._joined(inner, border)

    @cached_property
    def _band_inverse(self) -> np.ndarray:
        """K⁻¹ in the blocks of ``Places``, [g, …]."""
        parts = []
        for band in self._bands:
            for blocks in band.inverse():
                parts.append(np.moveaxis(blocks, 1, 0).reshape(self._points, -1))
        return np.concatenate([*parts, np.zeros((self._points, 1))], 1)

    @cached_property
    def _border_roots(self) -> np.ndarray:
        """What the border adds to the inverse, as Yᵀ Y: [g, p, d]."""
        border = np.swapaxes(self._border, 1, 2)
        inner = self._by_band(_backward, self._coupling) @ border
        return np.ascontiguousarray(np.swapaxes(self._joined(inner, -border), 1, 2))

    @cached_property
    def _border_columns(self) -> np.ndarray:
        """The border's columns of the inverse, [g, p, d]."""
        return -np.swapaxes(self._border, 1, 2) @ self._border_roots

    def _blocks(self, matrix: Sparse) -> list[np.ndarray]:
        """Return the numbers of each band's blocks, [g, …]; identity where no coordinate is."""
        places = self._places
        numbers = np.zeros((self._points, places.zero + 1))
        numbers[:, places.blocks(matrix.pattern)] = matrix.values
        numbers[:, places.unused] = 1
        return [
            numbers[:, start:stop]
            for start, stop in zip(places.block_starts, places.block_starts[1:], strict=False)
        ]

    def _border_parts(self, matrix: Sparse) -> tuple[np.ndarray, np.ndarray]:
        """Return U, [g, padded, p], and B, [g, p, p]."""
        entries, rows, columns = self._border_entries(matrix.pattern)
        columns_of_border = np.zeros((self._points, self.size, len(self._places.ordering.border)))
        columns_of_border[:, rows, columns] = matrix.values[:, entries]
        return self._split(columns_of_border)

    def _border_entries(self, pattern: Pattern) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the entries of the border's columns, their rows, and columns in the border."""

        def find() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            entries = np.flatnonzero(self._places.is_border[pattern.columns])
            columns = self._rank_in_border(pattern.columns[entries])
            return entries, pattern.rows[entries], columns

        return pattern.remember((self._places, "border"), find)

    def _inner_and_outer(self, pattern: Pattern) -> tuple[np.ndarray, ...]:
        """Return the entries apart from the border with their rows and columns, and the others.

        The others with their places in the border's columns of the inverse, [p, d].
        """

        def find() -> tuple[np.ndarray, ...]:
            is_border_row = self._places.is_border[pattern.rows]
            is_outer = is_border_row | self._places.is_border[pattern.columns]
            inner, outer = np.flatnonzero(~is_outer), np.flatnonzero(is_outer)
            rows, columns = pattern.rows[outer], pattern.columns[outer]
            in_border = np.where(is_border_row[outer], rows, columns)
            other = np.where(is_border_row[outer], columns, rows)
            places = self._rank_in_border(in_border) * self.size + other
            return inner, pattern.rows[inner], pattern.columns[inner], outer, places

        return pattern.remember((self._places, "inner and outer"), find)

    def _rank_in_border(self, coordinates: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._places.ordering.border, coordinates)

    def _split(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the slots [g, padded, k] and the border [g, p, k] of coordinates [g, d, k]."""
        inner = np.zeros((self._points, self._places.padded, right.shape[2]))
        inner[:, self._places.slots] = np.take(right, self._places.inner, axis=1)
        border = np.broadcast_to(right, (self._points, *right.shape[1:]))
        return inner, np.take(border, self._places.ordering.border, axis=1)

    def _joined(self, inner: np.ndarray, border: np.ndarray) -> np.ndarray:
        """Return coordinates [g, d, k] from their slots and the border."""
        whole = np.empty((self._points, self.size, inner.shape[2]))
        whole[:, self._places.inner] = np.take(inner, self._places.slots, axis=1)
        whole[:, self._places.ordering.border] = border
        return whole

    def _by_band(
        self, solve: Callable[[Band, np.ndarray], np.ndarray], inner: np.ndarray
    ) -> np.ndarray:
        """Return what every band makes of its slots, [g, padded, k]."""
        solved = np.empty_like(inner)
        parts = zip(self._bands, self._places.ordering.groups, self._places.starts, strict=False)
        for band, group, start in parts:
            part = inner[:, start : start + group.padded]
            shape = (self._points, group.length, group.lanes, group.size, inner.shape[2])
            steps = np.ascontiguousarray(np.moveaxis(part.reshape(shape), 1, 0))
            solved[:, start : start + group.padded] = np.moveaxis(solve(band, steps), 0, 1).reshape(
                part.shape
            )
        return solved


def _forward(band: Band, right: np.ndarray) -> np.ndarray:
    return band.forward(right)


def _backward(band: Band, right: np.ndarray) -> np.ndarray:
    return band.backward(right)


def _band(diagonal: np.ndarray, below: np.ndarray) -> Band:
    kind = Chain if Chain.pays(diagonal.shape) else Band
    return kind(diagonal, below)


def _split(numbers: np.ndarray, group: Group) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks on the diagonal and below it, [N, g, l, s, s], of their numbers."""
    points, block = len(numbers), (group.lanes, group.size, group.size)
    count = group.length * group.lanes * group.size**2
    diagonal = numbers[:, :count].reshape(points, group.length, *block)
    below = numbers[:, count:].reshape(points, group.length - 1, *block)
    return (
        np.ascontiguousarray(np.moveaxis(diagonal, 1, 0)),
        np.ascontiguousarray(np.moveaxis(below, 1, 0)),
    )
