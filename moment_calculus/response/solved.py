"""Rows solved for at the optimum: what all corrected moments are made of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moment_calculus.response.errors import Undetermined
from moment_calculus.response.functional import Functional, selected
from moment_calculus.response.latents import Layout
from moment_calculus.response.optimum import DENSE, inverse_hessian
from moment_calculus.response.problem import Problem
from moment_calculus.response.solvers.dense import Dense

ENTRIES = 2**23  # of what is held at once beside the Hessian


class Solved:
    """The inverse Hessian at an optimum.

    Args:
        problem: model, guide and data there.
        tolerance: Newton decrement up to which it is one, in nats.

    Raises:
        NotAnOptimum: if it is none; the message names the sites and the remedy.
    """

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.size = problem.place.size
        self.locations = selected(problem.locations, self.size)
        self.layout = Layout(problem.latents, problem.leaves, self.locations)
        self.inverse = inverse_hessian(problem.objective, problem.place, self.layout, tolerance)

    def rows(self, functional: Functional, part: slice | None = None) -> Iterator[np.ndarray]:
        """G H⁻¹ of some elements at once, [k, n].

        Args:
            functional: with the Jacobian G.
            part: which elements; by default all.

        Raises:
            ValueError: if the loss is flat along a direction on which they depend.
        """
        for _, solved in self._pairs(functional, part):
            yield solved

    def variances(self, functional: Functional, part: slice | None = None) -> np.ndarray:
        """The diagonal of G H⁻¹ Gᵀ.

        Args:
            functional: with the Jacobian G.
            part: which elements; by default all.
        """
        count = _length(functional, part)
        if part is None and isinstance(self.inverse, Dense) and count > self.size:
            return self._by_directions(functional, self.inverse)
        sums = [(pulled * solved).sum(1) for pulled, solved in self._pairs(functional, part)]
        return np.concatenate([np.zeros(0), *sums])

    def covariance(
        self,
        functional: Functional,
        part: slice | None = None,
        other: Functional | None = None,
    ) -> np.ndarray:
        """G H⁻¹ Gᵀ, [elements of the part, elements of the other].

        Args:
            functional: with the Jacobian G of the rows.
            part: which rows; by default all.
            other: with that of the columns; by default the same.
        """
        other = functional if other is None else other
        found = [other.push(solved) for solved in self.rows(functional, part)]
        return np.concatenate([np.zeros([0, len(other.value)]), *found])

    def check_count(self, count: int, what: str) -> None:
        """Refuse more solutions by conjugate gradients than a user would wait for.

        Args:
            count: how many.
            what: they are for.

        Raises:
            ValueError: with the remedy.
        """
        if count > DENSE and self.inverse.diagonal() is None:
            raise ValueError(
                f"{what} has {count} elements, and each takes a solution by conjugate gradients: "
                "ask for the moments of a function of some of them, response.moments(lambda "
                "sites: ...)"
            )

    def variances_alone(self, shape: tuple[int, ...]) -> bool:
        """Whether the covariances over a trailing axis would be too many.

        Args:
            shape: of a quantity.
        """
        return int(np.prod(shape)) * shape[-1] > ENTRIES

    def _pairs(
        self, functional: Functional, part: slice | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Rows of G and of G H⁻¹, some at once."""
        size = len(functional.value)
        part = part or slice(0, size)
        width = max(1, ENTRIES // max(self.size, size))
        for start in range(part.start, part.stop, width):
            places = np.arange(start, min(start + width, part.stop))
            unit = np.zeros([len(places), size])
            unit[np.arange(len(places)), places] = 1
            pulled = functional.pull(unit)
            yield pulled, self._solved(pulled)

    def _solved(self, rows: np.ndarray) -> np.ndarray:
        try:
            return self.inverse.solve(rows)
        except Undetermined as found:
            shares = self.layout.shares(found.direction**2)[:3]
            names = ", ".join(f"'{name}'" for name, _ in shares)
            raise ValueError(
                f"the posterior is flat along a direction of {names}: neither priors nor data "
                "determine it, so that this has no variance; give these sites proper priors"
            ) from None

    def _by_directions(self, functional: Functional, inverse: Dense) -> np.ndarray:
        """The same by as many directions as there are parameters."""
        width = max(1, ENTRIES // len(functional.value))
        root = inverse.root.T
        sums = (
            (functional.push(root[start : start + width]) ** 2).sum(0)
            for start in range(0, len(root), width)
        )
        return sum(sums, start=np.zeros(len(functional.value)))


def _length(functional: Functional, part: slice | None) -> int:
    return len(functional.value) if part is None else part.stop - part.start
