"""Sums over all pairs of predictors, by blocks of columns of their covariances."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from moment_inference.nested.cumulant.derivatives import ORDERS, Derivatives, Sums, tail
from moment_inference.nested.factors import Factors
from moment_inference.nested.sparse import Sparse

NUMBERS = 2**22  # most numbers of covariances at once
_Part = np.ndarray | slice  # of the predictors


def sums_over_all_pairs(derivatives: Derivatives, factors: Factors, design: Sparse) -> Sums:
    """Return the sums; a pair of different blocks is visited once."""
    (points, count), size = derivatives.rates.shape, design.shape[1]
    sums = Sums.zeros(points, count, size)
    width = max(1, NUMBERS // max(1, points * (count + size)))
    for start in range(0, count, width):
        stop = min(start + width, count)
        columns, others = slice(start, stop), slice(stop, count)
        crossed = factors.crossed(design, start, stop)
        covariances = design.rows_between(start, count).times(crossed)
        for point in range(points):
            at_point = _AtPoint(derivatives, point, sums)
            at_point.add(covariances[point, : stop - start], columns, columns)
            at_point.add(covariances[point, stop - start :], others, columns)
            at_point.add_third(crossed[point], columns)
    return sums


class _AtPoint:
    """The sums at one point, to which blocks of covariances add."""

    def __init__(self, derivatives: Derivatives, point: int, sums: Sums) -> None:
        self.derivatives, self.point, self.sums = derivatives, point, sums

    def add(self, covariances: np.ndarray, rows: slice, columns: slice) -> None:
        """Add the pairs of rows and columns, and the mirrored ones where rows are others."""
        is_exponential = self.derivatives.is_exponential
        for some_rows, of_rows in _kinds(is_exponential, rows):
            for some_columns, of_columns in _kinds(is_exponential, columns):
                block = covariances[some_rows][:, some_columns]
                pairs = of_rows, of_columns, rows != columns
                if is_exponential[of_rows].all() and is_exponential[of_columns].all():
                    self._add_exponentials(block, *pairs)
                else:
                    self._add_series(block, *pairs)

    def add_third(self, crossed: np.ndarray, columns: slice) -> None:
        """Add the third moments by some predictors."""
        cubes = crossed * crossed
        cubes *= crossed
        self.sums.third[self.point] += cubes @ self.derivatives.order(3, self.point)[columns]

    def _add_exponentials(
        self, covariances: np.ndarray, rows: _Part, columns: _Part, is_mirrored: bool
    ) -> None:
        rates, factors = self.derivatives.rates[self.point], self.derivatives.factors[self.point]
        scaled = covariances * rates[columns]
        scaled *= rates[rows, None]
        self._add(tail(scaled), (factors, rates * factors), rows, columns, is_mirrored)

    def _add_series(
        self, covariances: np.ndarray, rows: _Part, columns: _Part, is_mirrored: bool
    ) -> None:
        powers = covariances * covariances
        for order in ORDERS:
            powers *= covariances
            root = math.sqrt(math.factorial(order))
            here, further = (
                self.derivatives.order(n, self.point) / root for n in (order, order + 1)
            )
            self._add(powers, (here, further), rows, columns, is_mirrored)

    def _add(
        self,
        powers: np.ndarray,
        terms: tuple[np.ndarray, np.ndarray],
        rows: _Part,
        columns: _Part,
        is_mirrored: bool,
    ) -> None:
        """Add Σ_ij a_i p_ij a_j and its slopes, with the terms a_i and their derivatives."""
        (here, further), slopes = terms, self.sums.slopes[self.point]
        of_columns = here[rows] @ powers
        slopes[columns] += further[columns] * of_columns
        evidence = here[columns] @ of_columns
        if is_mirrored:
            slopes[rows] += further[rows] * (powers @ here[columns])
            evidence *= 2
        self.sums.evidence[self.point] += evidence / 2


def _kinds(is_exponential: np.ndarray, part: slice) -> Iterator[tuple[_Part, _Part]]:
    """Return the exponentials of a part and the others, by places there and among all."""
    kinds = is_exponential[part]
    if len(kinds) and kinds.all() == kinds.any():
        yield slice(None), part
    elif len(kinds):
        for places in (np.flatnonzero(kinds), np.flatnonzero(~kinds)):
            yield places, part.start + places
