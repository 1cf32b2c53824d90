"""A sparse matrix at every grid point, all with one pattern."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_inference.nested.sparse.grams import dense_of, gram_of
from moment_inference.nested.sparse.patterns import Entries, Pattern, Shape


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse matrix [n, d] at every grid point, all with one pattern.

    Attributes:
        pattern: where the entries are, in row-major order.
        values: of the entries, [g, e]; [1, e] is the same matrix at all points.
    """

    pattern: Pattern
    values: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: Shape) -> Sparse:
        """Return the matrix of entries in any order; those of one position are added."""
        return cls.of_entries(Entries(rows, columns, shape), values)

    @classmethod
    def of_entries(cls, entries: Entries, values: np.ndarray) -> Sparse:
        """Return the same as ``of``; the entries are sorted once for many matrices."""
        return cls(entries.pattern, entries.in_order(np.asarray(values, float)))

    @property
    def rows(self) -> np.ndarray:
        """The rows of the entries, [e]."""
        return self.pattern.rows

    @property
    def columns(self) -> np.ndarray:
        """The columns of the entries, [e]."""
        return self.pattern.columns

    @property
    def shape(self) -> Shape:
        """The shape of each matrix, (n, d)."""
        return self.pattern.shape

    def times(self, right: np.ndarray) -> np.ndarray:
        """Return A x, [g, n] or [g, n, k]."""
        return self.pattern.times(self.values, right)

    def transposed_times(self, right: np.ndarray) -> np.ndarray:
        """Return Aᵀ y, [g, d] or [g, d, k]."""
        return self.pattern.transposed_times(self.values, right)

    def gram(self, weights: np.ndarray) -> Sparse:
        """Return Aᵀ diag(w) A."""
        gram = gram_of(self.pattern)
        return Sparse(gram.pattern, gram.weighted(self.values, weights))

    def __add__(self, other: Sparse) -> Sparse:
        if self.shape != other.shape:
            raise ValueError(f"matrices {self.shape} and {other.shape} have no sum")
        union = self.pattern.union(other.pattern)
        first, second = (other, self) if union is other.pattern else (self, other)
        sums = np.zeros((max(len(self.values), len(other.values)), union.size))
        if union is first.pattern:
            sums[:] = first.values
        else:
            sums[:, union.places(first.pattern)] = first.values
        sums[:, union.places(second.pattern)] += second.values
        return Sparse(union, sums)

    def dense(self) -> np.ndarray:
        """Return the matrices with their zeros, [g, n, d]."""
        return dense_of(self.pattern, self.values)

    def take(self, points: np.ndarray) -> Sparse:
        """Return the matrices at some grid points."""
        return self if len(self.values) == 1 else Sparse(self.pattern, self.values[points])

    def rows_between(self, start: int, stop: int) -> Sparse:
        """Return some rows, [g, stop − start, d]."""
        first, last = self.pattern.starts[[start, stop]]
        size = self.shape[1]
        keys = self.pattern.keys[first:last] - start * size
        return Sparse(Pattern.of_keys(keys, (stop - start, size)), self.values[:, first:last])

    def dense_rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows as columns, [g, d, stop − start]."""
        first, last = self.pattern.starts[[start, stop]]
        columns = np.zeros((len(self.values), self.shape[1], stop - start))
        rows = self.rows[first:last] - start
        columns[:, self.columns[first:last], rows] = self.values[:, first:last]
        return columns
