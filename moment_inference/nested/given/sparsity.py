"""Where a large matrix has entries, from fewer products than it has columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from moment_inference.nested.sparse import Pattern, Sparse
from moment_inference.nested.sparse.patterns import Shape, flat_positions

Products = Callable[[np.ndarray, np.ndarray], np.ndarray]  # of points and directions, [g, k, n]

NUMBERS = 2**23  # most numbers of products at once
DIRECTIONS = 128  # at once
FEW = 512  # columns of a matrix that are looked at one by one
BINS, ROUNDS = 32, 6
DENSE = 64  # most rows of a symmetric matrix that are left to their columns
ZERO, WHOLE = 1e-10, 1e-4  # what counts as none of a row's largest number, and as an integer


def pattern_of(products: Products, points: np.ndarray, shape: Shape) -> Pattern:
    """Return where a matrix has entries at some of the points."""
    found = _by_bins(products, points, shape) if shape[1] > FEW else None
    return found or _by_columns(products, points, shape, np.arange(shape[1]))


def _by_columns(
    products: Products, points: np.ndarray, shape: Shape, columns: np.ndarray
) -> Pattern:
    """Return the entries of some columns."""
    size, count = shape[1], _at_once(points, shape)
    parts = [np.zeros((0, 2), int)]
    for start in range(0, len(columns), count):
        several = columns[start : start + count]
        directions = np.zeros((count, size))
        directions[np.arange(len(several)), several] = 1
        place, row = np.nonzero((products(points, directions) != 0).any(0))
        parts.append(np.stack([row, several[place]], 1))
    row, column = np.concatenate(parts).T
    return Pattern.of(row, column, shape)


def _at_once(points: np.ndarray, shape: Shape) -> int:
    """Return how many directions to take at once."""
    return int(np.clip(NUMBERS // max(1, len(points) * sum(shape)), 8, DIRECTIONS))


def _by_bins(products: Products, points: np.ndarray, shape: Shape) -> Pattern | None:
    """Return the entries of a matrix with few in most rows; None if it has many.

    Columns fall into bins at random. Products with random weights of a bin, with the same times
    the columns' numbers, and with other random weights tell whether a row has one entry there, and
    in which column; it is taken off before columns fall anew. In a symmetric matrix rows with many
    entries are columns.
    """
    generator = np.random.default_rng(0)
    size, known = shape[1], _Entries.none(len(points), shape)
    for _ in range(ROUNDS):
        bins = _Bins.of(generator, size)
        sums = _products(products, points, bins.directions, shape)
        known, is_left = bins.read(sums, known)
        rows = np.flatnonzero(is_left)
        if not len(rows):
            return known.pattern
    if shape[0] != size or len(rows) > DENSE:
        return None
    columns = _by_columns(products, points, shape, rows)
    keys = (known.pattern.keys, columns.keys, columns.columns * size + columns.rows)
    return Pattern.of_keys(np.unique(np.concatenate(keys)), shape)


def _products(
    products: Products, points: np.ndarray, directions: np.ndarray, shape: Shape
) -> np.ndarray:
    """Return products with directions [k, d], some at a time, [g, k, n]."""
    count = min(_at_once(points, shape), len(directions))
    parts = []
    for start in range(0, len(directions), count):
        several = directions[start : start + count]
        padded = np.concatenate([several, np.zeros((count - len(several), shape[1]))])
        parts.append(products(points, padded)[:, : len(several)])
    return np.concatenate(parts, 1)


@dataclass(frozen=True, eq=False)
class _Entries:
    """Entries found so far, by their positions, with values [g, e]."""

    pattern: Pattern
    values: np.ndarray

    @classmethod
    def none(cls, points: int, shape: Shape) -> _Entries:
        return cls(Pattern.of_keys(np.zeros(0, np.int64), shape), np.zeros((points, 0)))

    def with_more(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> _Entries:
        """Return the entries and others elsewhere."""
        shape = self.pattern.shape
        keys = np.concatenate([self.pattern.keys, flat_positions(rows, columns, shape)])
        keys, inverse = np.unique(keys, return_inverse=True)
        together = np.zeros((len(values), len(keys)))
        for sums, each in zip(together, np.concatenate([self.values, values], 1), strict=True):
            np.add.at(sums, inverse, each)
        return _Entries(Pattern.of_keys(keys, shape), together)


@dataclass(frozen=True, eq=False)
class _Bins:
    """Columns in bins."""

    of_columns: np.ndarray  # [d]
    weights: np.ndarray  # [3, d]: random ones, the same times columns' numbers, and others

    @classmethod
    def of(cls, generator: np.random.Generator, size: int) -> _Bins:
        first, last = generator.uniform(1, 2, size=(2, size))
        weights = np.stack([first, first * (1 + np.arange(size)), first * last])
        return cls(generator.integers(BINS, size=size), weights)

    @property
    def directions(self) -> np.ndarray:
        """Return the weights of each bin, [3 bins, d]."""
        size = len(self.of_columns)
        directions = np.zeros((3, BINS, size))
        directions[:, self.of_columns, np.arange(size)] = self.weights
        return directions.reshape(-1, size)

    def read(self, sums: np.ndarray, known: _Entries) -> tuple[_Entries, np.ndarray]:
        """Return the entries with those alone in bins, and which rows have others left, [n]."""
        scale = np.abs(sums).max((0, 1)) + 1e-300
        matrix = Sparse(known.pattern, known.values)
        right = np.broadcast_to(self.directions.T, (len(sums), *self.directions.T.shape))
        rest = sums - np.swapaxes(matrix.times(right), 1, 2)
        first, numbered, last = np.moveaxis(rest.reshape(len(sums), 3, BINS, -1), 1, 0)
        is_none = (np.abs(rest) <= ZERO * scale).reshape(len(sums), 3, BINS, -1).all(1)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(is_none, 1.0, numbered / first)
        column = np.clip(np.nan_to_num(np.rint(exact)), 1, len(self.of_columns)).astype(int) - 1
        expected = first * (self.weights[2] / self.weights[0])[column]
        is_one = np.abs(exact - 1 - column) < WHOLE
        is_one &= np.abs(last - expected) <= WHOLE * np.abs(last)
        is_one &= self.of_columns[column] == np.arange(BINS)[:, None]
        column = np.where(is_none, column.max(0, where=~is_none, initial=-1), column)
        agree = (is_none | is_one).all(0) & (column == column[0]).all(0)
        is_new = agree & ~is_none.all(0)
        places, rows = np.nonzero(is_new)
        columns = column[0][is_new]
        values = first[:, places, rows] / self.weights[0][columns]
        values = np.where(is_none[:, places, rows], 0.0, values)
        return known.with_more(rows, columns, values), ~agree.all(0)
