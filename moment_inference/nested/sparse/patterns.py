"""Where a sparse matrix has entries, and products that need the values beside."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.sparse import csc_array, csr_array

Made = TypeVar("Made")
Shape = tuple[int, int]


class Pattern:
    """Where a matrix has entries, in row-major order; equal patterns are one object.

    What follows from the pattern alone (products' indices, orders of elimination) is computed
    once and kept here, so that new values cost arithmetic only.

    Attributes:
        rows: of the entries, [e].
        columns: of the entries, [e].
        shape: (n, d).
    """

    _all: ClassVar[weakref.WeakValueDictionary[Hashable, Pattern]] = weakref.WeakValueDictionary()

    def __init__(self, keys: np.ndarray, shape: Shape) -> None:
        """Begin with sorted positions in the flattened matrix; callers use ``of``."""
        self.shape, self.keys = shape, keys
        self.rows, self.columns = np.divmod(keys, max(shape[1], 1))
        self._remembered: dict[Hashable, Any] = {}

    @classmethod
    def of_keys(cls, keys: np.ndarray, shape: Shape) -> Pattern:
        """Return the pattern with these sorted positions in the flattened matrix."""
        identity = (shape, keys.tobytes())
        if (known := cls._all.get(identity)) is None:
            known = cls._all[identity] = cls(keys, shape)
        return known

    @classmethod
    def of(cls, rows: np.ndarray, columns: np.ndarray, shape: Shape) -> Pattern:
        """Return the pattern of entries in any order, perhaps repeated."""
        return cls.of_keys(np.unique(flat_positions(rows, columns, shape)), shape)

    @property
    def size(self) -> int:
        """The number of entries."""
        return len(self.keys)

    @cached_property
    def starts(self) -> np.ndarray:
        """The first entry of each row, and the number of entries, [n + 1]."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    def remember(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what follows from the pattern, made at the first request."""
        if key not in self._remembered:
            self._remembered[key] = make()
        return self._remembered[key]

    def places(self, inner: Pattern) -> np.ndarray:
        """Return the entries here at the positions of a pattern that lies within."""
        return self.remember(("places", inner), lambda: np.searchsorted(self.keys, inner.keys))

    def union(self, other: Pattern) -> Pattern:
        """Return the pattern of a sum."""
        make = lambda: Pattern.of_keys(np.union1d(self.keys, other.keys), self.shape)  # noqa: E731
        return self if other is self else self.remember(("union", other), make)

    def times(self, values: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return matrices of values [g or 1, e] times [g, d] or [g, d, k]."""
        return self._product(values, right, is_transposed=False)

    def transposed_times(self, values: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the transposes of matrices of values [g or 1, e] times [g, n] or [g, n, k]."""
        return self._product(values, right, is_transposed=True)

    def _product(self, values: np.ndarray, right: np.ndarray, *, is_transposed: bool) -> np.ndarray:
        if len(values) == 1 < len(right):
            return self._shared_product(values, right, is_transposed)
        points, height = len(values), self.shape[1 if is_transposed else 0]
        if len(right) != points:
            right = np.broadcast_to(right, (points, *right.shape[1:]))
        stacked = right.reshape(points * right.shape[1], *right.shape[2:])
        matrix = self._stacked(values, is_transposed)
        return (matrix @ stacked).reshape(points, height, *right.shape[2:])

    def _shared_product(
        self, values: np.ndarray, right: np.ndarray, is_transposed: bool
    ) -> np.ndarray:
        """Return products of one matrix with many points' arrays: the points become columns."""
        columns = np.moveaxis(right, 0, 1)
        flat = columns.reshape(len(columns), math.prod(columns.shape[1:]))
        product = self._stacked(values, is_transposed) @ flat
        return np.moveaxis(product.reshape(len(product), *columns.shape[1:]), 1, 0)

    def _stacked(self, values: np.ndarray, is_transposed: bool) -> csr_array | csc_array:
        """Return the matrices of all points as blocks of one diagonal, perhaps transposed."""
        points, (n, d) = len(values), self.shape
        starts, columns = self._stacked_indices(points)
        parts = (values.reshape(-1), columns[: points * self.size], starts[: points * n + 1])
        if is_transposed:
            return csc_array(parts, shape=(points * d, points * n))
        return csr_array(parts, shape=(points * n, points * d))

    def _stacked_indices(self, points: int) -> tuple[np.ndarray, np.ndarray]:
        """Return starts of rows and columns of at least so many diagonal blocks."""
        known = self._remembered.get("stacked")
        if known is None or len(known[0]) <= points * self.shape[0]:
            block = np.arange(points)[:, None]
            starts = (self.starts[:-1] + block * self.size).reshape(-1)
            columns = (self.columns + block * self.shape[1]).reshape(-1)
            largest = points * max(self.size, *self.shape)
            kind = np.int32 if largest < np.iinfo(np.int32).max else np.int64
            starts = np.append(starts, points * self.size)
            self._remembered["stacked"] = known = (starts.astype(kind), columns.astype(kind))
        return known


class Entries:
    """Entries as a caller lists them, in any order and perhaps repeated, and their pattern."""

    def __init__(self, rows: np.ndarray, columns: np.ndarray, shape: Shape) -> None:
        positions = flat_positions(rows, columns, shape)
        keys, self._places = np.unique(positions, return_inverse=True)
        self.pattern = Pattern.of_keys(keys, shape)
        self._is_in_order = np.array_equal(self._places, np.arange(len(keys)))

    def in_order(self, values: np.ndarray) -> np.ndarray:
        """Return values in the pattern's order, those of a repeated position added."""
        if self._is_in_order:
            return values
        sums = np.zeros((len(values), self.pattern.size))
        if values.shape[1] == self.pattern.size:
            sums[:, self._places] = values
        else:
            for total, at_point in zip(sums, values, strict=True):
                total[:] = np.bincount(self._places, at_point, self.pattern.size)
        return sums


def flat_positions(rows: np.ndarray, columns: np.ndarray, shape: Shape) -> np.ndarray:
    """Return the positions of entries in a flattened matrix, refused outside of its shape."""
    rows, columns = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
    for name, indices, size in (("row", rows, shape[0]), ("column", columns, shape[1])):
        if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
            raise ValueError(f"a {name} of an entry is outside of the matrix's {size}")
    return rows * shape[1] + columns
