"""Aᵀ diag(w) A and diag(A S Aᵀ) of a sparse A: the symbolic part, once per pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from moment_inference.nested.sparse.patterns import Pattern

ENTRIES = 2**20  # most numbers of intermediate products at once
SHARES = 2.0 ** -np.arange(1, 6)  # of the rows: columns with more entries may be dense
# Seconds of 1e-9 for a pair of entries, and for a number of products with dense columns.
PAIR, DENSE, MIXED, STORED = 10.0, 0.5, 2.0, 50.0


class Gram(Protocol):
    """Products with a matrix on both sides of a diagonal, or of a symmetric matrix."""

    pattern: Pattern  # of Aᵀ diag(w) A, symmetric
    support: Pattern  # where ``quadratic`` needs the symmetric matrix

    def weighted(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the entries of Aᵀ diag(w) A, [g, e]."""
        ...

    def quadratic(self, values: np.ndarray, symmetric: np.ndarray) -> np.ndarray:
        """Return diag(A S Aᵀ), [g, n], from S on ``support``."""
        ...


def gram_of(pattern: Pattern) -> Gram:
    """Return the products of a pattern, with those of its columns dense that pay."""
    return pattern.remember("gram", lambda: _new_gram(pattern))


def _new_gram(pattern: Pattern) -> Gram:
    shares = np.bincount(pattern.columns, minlength=pattern.shape[1]) / max(pattern.shape[0], 1)
    masks = [shares > share for share in (1, *SHARES)]
    best = min(masks, key=lambda is_dense: _seconds(pattern, is_dense))
    return SplitGram(pattern, best) if best.any() else PairGram(pattern)


def _seconds(pattern: Pattern, is_dense: np.ndarray) -> float:
    """Return about what products take with some columns dense."""
    n, count = pattern.shape[0], float(is_dense.sum())
    rows = pattern.rows[~is_dense[pattern.columns]]
    in_row = np.bincount(rows, minlength=n).astype(float)
    pairs = float((in_row * (in_row + 1)).sum()) / 2
    return PAIR * pairs + n * count * (DENSE * count + STORED) + MIXED * len(rows) * count


class PairGram:
    """By pairs of entries in one row: each adds to one entry of the product."""

    def __init__(self, pattern: Pattern) -> None:
        d = pattern.shape[1]
        last = pattern.starts[pattern.rows + 1]
        counts = last - np.arange(pattern.size)  # partners of an entry: itself and those behind
        left = np.repeat(np.arange(pattern.size), counts)
        right = left + np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = pattern.columns[left] * d + pattern.columns[right]
        upper, place = np.unique(keys, return_inverse=True)
        self._left, self._right = left, right
        # The matrix [rows of A, upper entries] whose values are the pairs' products.
        shape = (pattern.shape[0], len(upper))
        self._pairs = Pattern.of_keys(pattern.rows[left] * shape[1] + place, shape)
        self.support = Pattern.of_keys(upper, (d, d))
        self._multiplicity = np.where(self.support.rows == self.support.columns, 1.0, 2.0)
        self.pattern = Pattern.of(
            np.append(self.support.rows, self.support.columns),
            np.append(self.support.columns, self.support.rows),
            (d, d),
        )
        low = np.minimum(self.pattern.rows, self.pattern.columns)
        high = np.maximum(self.pattern.rows, self.pattern.columns)
        self._mirrored = np.searchsorted(upper, low * d + high)

    def weighted(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the entries of Aᵀ diag(w) A, [g, e]."""
        upper = np.empty((max(len(values), len(weights)), self.support.size))
        for points, part in self._parts(values, len(upper)):
            upper[points] = self._pairs.transposed_times(part, _at(weights, points))
        return np.take(upper, self._mirrored, axis=1)

    def quadratic(self, values: np.ndarray, symmetric: np.ndarray) -> np.ndarray:
        """Return diag(A S Aᵀ), [g, n], from S on ``support``."""
        sums = np.empty((max(len(values), len(symmetric)), self._pairs.shape[0]))
        for points, part in self._parts(values, len(sums)):
            doubled = _at(symmetric, points) * self._multiplicity
            sums[points] = self._pairs.times(part, doubled)
        return sums

    def _parts(self, values: np.ndarray, count: int) -> Iterator[tuple[slice, np.ndarray]]:
        """Return slices of points with the products of the pairs there."""
        if len(values) == 1:
            yield slice(0, count), self._products(values)
            return
        for points in slices(count, self._pairs.size):
            yield points, self._products(values[points])

    def _products(self, values: np.ndarray) -> np.ndarray:
        products = np.take(values, self._left, axis=1)
        products *= np.take(values, self._right, axis=1)
        return products


class SplitGram:
    """By dense products for columns with many entries, and by pairs for the others.

    The numbers of a product are [dense, dense], [all, dense] and pairs, one after another.
    """

    def __init__(self, pattern: Pattern, is_dense: np.ndarray) -> None:
        (n, d), self._dense = pattern.shape, np.flatnonzero(is_dense)
        is_in_dense = is_dense[pattern.columns]
        self._entries = np.flatnonzero(is_in_dense), np.flatnonzero(~is_in_dense)
        rank = np.cumsum(is_dense) - 1
        dense_keys, sparse_keys = (pattern.keys[entries] for entries in self._entries)
        columns = rank[dense_keys % max(d, 1)]
        k = len(self._dense)
        self._left = Pattern.of_keys(dense_keys // max(d, 1) * k + columns, (n, k))
        self._right = Pattern.of_keys(sparse_keys, (n, d))
        self._pairs = PairGram(self._right)
        self.pattern = self.support = self._coupled()
        self._places = self._places_of_entries(rank, is_dense)

    def weighted(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the entries of Aᵀ diag(w) A, [g, e]."""
        count = max(len(values), len(weights))
        entries = np.empty((count, self.pattern.size))
        for points in slices(count, self._left.shape[0] * self._left.shape[1]):
            dense, right = self._parts(_at(values, points))
            weight = _at(weights, points)
            scaled = dense * weight[:, :, None]
            square = np.swapaxes(dense, 1, 2) @ scaled
            numbers = [
                (square + np.swapaxes(square, 1, 2)) / 2,
                self._right.transposed_times(right, scaled),
                self._pairs.weighted(right, weight),
            ]
            flat = [part.reshape(len(scaled), -1) for part in numbers]
            entries[points] = np.take(np.concatenate(flat, 1), self._places, axis=1)
        return entries

    def quadratic(self, values: np.ndarray, symmetric: np.ndarray) -> np.ndarray:
        """Return diag(A S Aᵀ), [g, n], from S on ``support``."""
        count = max(len(values), len(symmetric))
        sums = np.empty((count, self._left.shape[0]))
        for points in slices(count, self._left.shape[0] * self._left.shape[1]):
            dense, right = self._parts(_at(values, points))
            square, mixed, pairs = self._numbers(_at(symmetric, points))
            product = dense @ square + 2 * self._right.times(right, mixed)
            sums[points] = (product * dense).sum(2) + self._pairs.quadratic(right, pairs)
        return sums

    def _parts(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the dense columns [g, n, k] and the other entries [g, e]."""
        left, right = (np.take(values, entries, axis=1) for entries in self._entries)
        return dense_of(self._left, left), right

    def _numbers(self, symmetric: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return [g, k, k], [g, d, k] and entries of pairs on their support, from ``support``."""
        d, k = self._right.shape[1], self._left.shape[1]
        square, mixed = k * k, d * k
        numbers = np.zeros((len(symmetric), square + mixed + self._pairs.pattern.size))
        numbers[:, self._places] = symmetric
        pairs = numbers[:, square + mixed :]
        return (
            numbers[:, :square].reshape(-1, k, k),
            numbers[:, square : square + mixed].reshape(-1, d, k),
            np.take(pairs, self._pairs.pattern.places(self._pairs.support), axis=1),
        )

    def _coupled(self) -> Pattern:
        """Return which columns have entries in one row."""
        d = self._right.shape[1]
        ones = np.ones((1, self._left.size))
        dense = dense_of(self._left, ones)
        square = (dense[0].T @ dense[0]).nonzero()
        others, columns = self._right.transposed_times(np.ones((1, self._right.size)), dense)[
            0
        ].nonzero()
        columns = self._dense[columns]
        pairs = self._pairs.pattern
        rows = [self._dense[square[0]], others, columns, pairs.rows]
        return Pattern.of(
            np.concatenate(rows),
            np.concatenate([self._dense[square[1]], columns, others, pairs.columns]),
            (d, d),
        )

    def _places_of_entries(self, rank: np.ndarray, is_dense: np.ndarray) -> np.ndarray:
        """Return where the numbers of the product have each entry of the pattern."""
        rows, columns = self.pattern.rows, self.pattern.columns
        k, d = self._left.shape[1], self._right.shape[1]
        is_row, is_column = is_dense[rows], is_dense[columns]
        other, dense = np.where(is_row, columns, rows), np.where(is_row, rows, columns)
        mixed = k * k + other * k + rank[dense]
        square = rank[rows] * k + rank[columns]
        pairs = k * k + d * k + np.searchsorted(self._pairs.pattern.keys, self.pattern.keys)
        return np.where(is_row & is_column, square, np.where(is_row | is_column, mixed, pairs))


def dense_of(pattern: Pattern, values: np.ndarray) -> np.ndarray:
    """Return matrices with their zeros, [g, n, d]."""
    n, d = pattern.shape
    dense = np.zeros((len(values), n * d))
    dense[:, pattern.keys] = values
    return dense.reshape(len(values), n, d)


def slices(count: int, numbers: int) -> Iterator[slice]:
    """Return slices of points, few enough for so many numbers at each."""
    step = max(1, ENTRIES // max(numbers, 1))
    return (slice(start, min(start + step, count)) for start in range(0, count, step))


def _at(array: np.ndarray, points: slice) -> np.ndarray:
    """Return an array at some points; one for all points stays."""
    return array if len(array) == 1 else array[points]
