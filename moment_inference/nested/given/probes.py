"""Matrices that depend on hyperparameters, from a few products: their pattern stays the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_inference.nested.given.sparsity import Products, pattern_of
from moment_inference.nested.sparse import Pattern, Sparse
from moment_inference.nested.sparse.patterns import Shape

TOLERANCE = 1e-7  # of a random product, relative


@dataclass(frozen=True, eq=False)
class Probed:
    """A matrix [n, d] as a function of points, known by its products with directions."""

    products: Products
    pattern: Pattern
    colours: np.ndarray  # of each column [d]: two of one colour have no row in common

    @classmethod
    def of(cls, products: Products, points: np.ndarray, shape: Shape) -> Probed:
        """Return the matrix whose elements are those that some point has."""
        pattern = pattern_of(products, points, shape)
        return cls(products, pattern, coloured(pattern))

    def at(self, points: np.ndarray) -> Sparse:
        """Return the matrix at points; raise ValueError if it has other elements there."""
        size = self.pattern.shape[1]
        count = int(self.colours.max(initial=-1)) + 1
        directions = np.zeros((count + 1, size))
        directions[self.colours, np.arange(size)] = 1
        directions[-1] = np.random.default_rng(0).normal(size=size)
        found = self.products(points, directions)
        values = found[:, self.colours[self.pattern.columns], self.pattern.rows]
        matrix = Sparse(self.pattern, values)
        difference = np.abs(
            matrix.times(np.broadcast_to(directions[-1], (len(points), size))) - found[:, -1]
        )
        if not (difference <= TOLERANCE * (1 + np.abs(found[:, -1]))).all():
            raise ValueError("the elements of the model that depend on each other differ by point")
        return matrix


def coloured(pattern: Pattern) -> np.ndarray:
    """Return a colour for each column, such that two of one colour have no row in common."""
    rows, size = pattern.shape
    colours = np.zeros(size, int)
    used = np.zeros((1, rows), bool)
    order = np.argsort(pattern.columns, kind="stable")
    counts = np.bincount(pattern.columns, minlength=size)
    of_columns = np.split(pattern.rows[order], np.cumsum(counts)[:-1])
    for column in np.argsort(-counts, kind="stable"):
        free = ~used[:, of_columns[column]].any(1)
        if not free.any():
            used = np.concatenate([used, np.zeros((1, rows), bool)])
            free = np.append(free, True)
        colours[column] = int(free.argmax())
        used[colours[column], of_columns[column]] = True
    return colours
