"""Aᵀ diag(w) A and diag(A S Aᵀ) of a sparse A: the symbolic part, once per pattern."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from scipy.sparse import csr_array

from moment_inference.nested.sparse.patterns import Pattern

ENTRIES = 2**20  # most numbers of intermediate products at once
DENSE_GAIN = 5  # how much faster a number of a dense product is than a pair of entries


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
    """Return the products of a pattern, by pairs of entries or dense, whichever is faster."""
    return pattern.remember("gram", lambda: _new_gram(pattern))


def _new_gram(pattern: Pattern) -> Gram:
    in_row = np.diff(pattern.starts).astype(float)
    pairs = float((in_row * (in_row + 1)).sum()) / 2
    is_dense = DENSE_GAIN * pairs > pattern.shape[0] * pattern.shape[1] ** 2
    return DenseGram(pattern) if is_dense else PairGram(pattern)


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


class DenseGram:
    """By dense products, for rows whose entries are many."""

    def __init__(self, pattern: Pattern) -> None:
        self._matrix = pattern
        n, d = pattern.shape
        ones = np.ones(pattern.size, np.float32)
        shape = (ones, pattern.columns, pattern.starts)
        present = csr_array(shape, shape=(n, d)).toarray()
        self.pattern = Pattern.of_keys(np.flatnonzero(present.T @ present), (d, d))
        self.support = self.pattern

    def weighted(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return the entries of Aᵀ diag(w) A, [g, e]."""
        count = max(len(values), len(weights))
        entries = np.empty((count, self.pattern.size))
        for points in slices(count, self._matrix.shape[0] * self._matrix.shape[1]):
            dense = dense_of(self._matrix, _at(values, points))
            scaled = dense * _at(weights, points)[:, :, None]
            product = np.swapaxes(dense, 1, 2) @ scaled
            product = (product + np.swapaxes(product, 1, 2)) / 2
            entries[points] = np.take(product.reshape(len(product), -1), self.pattern.keys, axis=1)
        return entries

    def quadratic(self, values: np.ndarray, symmetric: np.ndarray) -> np.ndarray:
        """Return diag(A S Aᵀ), [g, n], from S on ``support``."""
        count = max(len(values), len(symmetric))
        sums = np.empty((count, self._matrix.shape[0]))
        for points in slices(count, self._matrix.shape[0] * self._matrix.shape[1]):
            dense = dense_of(self._matrix, _at(values, points))
            product = dense @ dense_of(self.pattern, _at(symmetric, points))
            sums[points] = np.einsum("gnd,gnd->gn", product, np.broadcast_to(dense, product.shape))
        return sums


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
