"""Covariances of linear predictors that are U Uᵀ, but for pairs that share a component."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from moment_inference.nested.sparse import Sparse

NUMBERS = 2**21  # most numbers of near covariances at once


class Near(NamedTuple):
    """What some pairs of a row with a partner have beside U Uᵀ; 0 where there is no partner."""

    rows: np.ndarray  # [m]
    partners: np.ndarray  # predictors, [m, k]
    covariances: np.ndarray  # [g, m, k]


@dataclass(frozen=True, eq=False)
class BorderParts:
    """A M⁻¹ Aᵀ = U Uᵀ + N and M⁻¹ Aᵀ = V Uᵀ + N′, with N and N′ zero between components."""

    matrix: Sparse  # A, [g, n, d]
    predictors: np.ndarray  # U, [p, g, n]
    coordinates: np.ndarray  # V, [p, g, d]
    components: np.ndarray  # of the coordinates, −1 in the border, [d]
    solve: Callable[[np.ndarray], np.ndarray]  # K⁻¹ b [g, d, k], zero in the border

    @cached_property
    def of_rows(self) -> np.ndarray:
        """The component of each row of A, −1 where there is none, [n]."""
        pattern, found = self.matrix.pattern, np.full(self.matrix.shape[0], -1)
        inner = self.components[pattern.columns] >= 0
        found[pattern.rows[inner]] = self.components[pattern.columns[inner]]
        return found

    @cached_property
    def members(self) -> np.ndarray:
        """The rows of each component, [components, most]; −1 beyond their number."""
        inner = np.flatnonzero(self.of_rows >= 0)
        labels = self.of_rows[inner]
        order = np.argsort(labels, kind="stable")
        counts = np.bincount(labels, minlength=self.components.max(initial=-1) + 1)
        ranks = np.arange(len(inner)) - np.repeat(np.cumsum(counts) - counts, counts)
        members = np.full((len(counts), counts.max(initial=0)), -1)
        members[labels[order], ranks] = inner[order]
        return members

    @property
    def pairs(self) -> int:
        """About how many pairs of predictors share a component."""
        return len(self.of_rows) * self.members.shape[1]

    def near(self) -> Iterator[tuple[Near, Near]]:
        """Return pairs of predictors, and pairs of coordinates with predictors, in blocks."""
        points, (count, size) = self.predictors.shape[1], self.matrix.shape
        width = max(1, NUMBERS // max(1, points * (count + size)))
        for start in range(0, self.members.shape[1], width):
            columns = self.members[:, start : start + width]
            solved = self.solve(self._right(columns, points))
            yield (
                _near(self.of_rows, columns, self.matrix.times(solved)),
                _near(self.components, columns, solved),
            )

    def _right(self, columns: np.ndarray, points: int) -> np.ndarray:
        """Return columns of Aᵀ without the border, one of each component added, [g, d, k]."""
        pattern = self.matrix.pattern
        places = np.full(self.matrix.shape[0], -1)
        component, place = np.nonzero(columns >= 0)
        places[columns[component, place]] = place
        inner = self.components[pattern.columns] >= 0
        entries = np.flatnonzero(inner & (places[pattern.rows] >= 0))
        right = np.zeros((points, self.matrix.shape[1], columns.shape[1]))
        at = pattern.columns[entries], places[pattern.rows[entries]]
        right[:, at[0], at[1]] = self.matrix.values[:, entries]
        return right


def _near(components: np.ndarray, columns: np.ndarray, covariances: np.ndarray) -> Near:
    """Return the pairs of those that are in components with partners."""
    has_some = np.append(columns[:, 0] >= 0, False)[components]
    rows = np.flatnonzero(has_some)
    return Near(rows, np.maximum(columns[components[rows]], 0), covariances[:, rows])
