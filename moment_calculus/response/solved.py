"""Products with the inverse Hessian at the optimum, of which all corrected moments are made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moment_calculus.response.errors import FlatDirection, Undetermined
from moment_calculus.response.functional import Functional, selected
from moment_calculus.response.latents import Layout
from moment_calculus.response.optimum import inverse_hessian
from moment_calculus.response.problem import Problem
from moment_calculus.response.solvers.arrow import Arrow
from moment_calculus.response.solvers.dense import Dense

ENTRIES = 2**23  # most numbers that are held at once beside the Hessian
MOST = 2**27  # most numbers that are returned: a gibibyte
OF_SOME = "ask for those of a function of some elements, lambda sites: ..."
SOLUTIONS = 3000  # most solutions by conjugate gradients for which a user would wait


class Solved:
    """The inverse Hessian H⁻¹ of a problem at its optimum; G is the Jacobian of a functional."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.size = problem.place.size
        self.locations = selected(problem.locations, self.size)
        self.layout = Layout(problem.latents, problem.leaves, self.locations)
        if not self.layout.latents:
            raise ValueError("the model has no latent site: there is no posterior to correct")
        self.inverse, self.decrement = inverse_hessian(
            problem.objective, problem.place, self.layout, tolerance
        )

    def rows(self, functional: Functional, part: slice | None = None) -> Iterator[np.ndarray]:
        """Yield G H⁻¹ of some elements (by default all) in batches [k, n]."""
        for _, solved in self._pairs(functional, part or slice(0, len(functional.value))):
            yield solved

    def variances(self, functional: Functional, part: slice) -> np.ndarray:
        """Return the diagonal of G H⁻¹ Gᵀ at some elements."""
        return self.blocks(functional, part, 1).ravel()

    def blocks(self, functional: Functional, part: slice, width: int) -> np.ndarray:
        """Return the blocks along the diagonal of G H⁻¹ Gᵀ, [blocks, width, width]."""
        count = part.stop - part.start
        if isinstance(self.inverse, Dense) and count > self.size:
            return self._by_directions(functional, self.inverse, part, width)
        if isinstance(self.inverse, Arrow) and count > self.inverse.width:
            known = self.inverse.blocks(functional, part, width)
            if known is not None:
                return known
        self.check_count(count, "this")
        found = [
            np.einsum("bik,bjk->bij", *(rows.reshape(-1, width, self.size) for rows in pair))
            for pair in self._pairs(functional, part, width)
        ]
        return np.concatenate([np.zeros([0, width, width]), *found])

    def covariance(self, functional: Functional, rows: slice, columns: slice) -> np.ndarray:
        """Return G H⁻¹ Gᵀ of some elements (rows) with others (columns)."""
        if rows.stop - rows.start > columns.stop - columns.start:
            return self.covariance(functional, columns, rows).T
        self.check_size((rows.stop - rows.start) * (columns.stop - columns.start))
        self.check_count(rows.stop - rows.start, "the covariance")
        found = [functional.push(solved)[:, columns] for solved in self.rows(functional, rows)]
        return np.concatenate([np.zeros([0, columns.stop - columns.start]), *found])

    def check_size(self, count: int, remedy: str = OF_SOME) -> None:
        """Raise ValueError with the remedy if a result has more numbers than should be held."""
        if count > MOST:
            raise ValueError(f"that are {count:.1e} numbers: {remedy}")

    def check_count(self, count: int, what: str) -> None:
        """Raise ValueError if so many solutions by conjugate gradients would take too long."""
        if count > SOLUTIONS and self.inverse.is_iterative:
            raise ValueError(
                f"{what} has {count} elements, and each takes a solution by conjugate gradients: "
                "ask for the moments of a function of some of them, response.moments(lambda "
                "sites: ...)"
            )

    def _pairs(
        self, functional: Functional, part: slice, multiple: int = 1
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of rows of G and of G H⁻¹."""
        size = len(functional.value)
        width = multiple * max(1, ENTRIES // max(self.size, size) // multiple)
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
            raise FlatDirection(
                f"the loss is flat along a direction of {names}: neither priors nor data determine "
                "it, so that this has no variance; give these sites narrower priors, or ask for "
                "what does not depend on them"
            ) from None

    def _by_directions(
        self, functional: Functional, inverse: Dense, part: slice, width: int
    ) -> np.ndarray:
        """Return the same blocks with one product for each parameter instead of each element."""
        at_once = max(1, ENTRIES // len(functional.value))
        found = np.zeros([(part.stop - part.start) // width, width, width])
        for start in range(0, inverse.root.shape[1], at_once):
            pushed = functional.push(inverse.root.T[start : start + at_once])[:, part]
            parts = pushed.reshape(len(pushed), -1, width)
            found += np.einsum("kbi,kbj->bij", parts, parts)
        return found
