"""Products with the inverse Hessian at the optimum, of which all corrected moments are made."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moment_calculus.response.errors import FlatDirection, Undetermined
from moment_calculus.response.functional import Functional, as_selection
from moment_calculus.response.latents import ParameterLayout
from moment_calculus.response.optimum import inverse_hessian
from moment_calculus.response.problem import Problem
from moment_calculus.response.solvers.arrow import Arrow
from moment_calculus.response.solvers.dense import Dense

ENTRIES = 2**23  # most numbers that are held at once beside the Hessian
MOST = 2**27  # most numbers that are returned: a gibibyte
REMEDY_FEWER = "ask for those of a function of some elements, lambda sites: ..."
SOLUTIONS = 3000  # most solutions by conjugate gradients for which a user would wait


class InverseCurvature:
    """The inverse Hessian H⁻¹ of a problem at its optimum; G is the Jacobian of a functional."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.size = problem.parameters.size
        self.locations = as_selection(problem.locations, self.size)
        self.layout = ParameterLayout(problem.latents, problem.leaves, self.locations)
        if not self.layout.latents:
            raise ValueError("the model has no latent site: there is no posterior to correct")
        self.inverse, self.decrement = inverse_hessian(
            problem.objective, problem.parameters, self.layout, tolerance
        )

    def rows(self, functional: Functional, part: slice | None = None) -> Iterator[np.ndarray]:
        """Yield G H⁻¹ of some elements (by default all) in batches [k, n]."""
        for _, solved in self._row_batches(functional, part or slice(0, len(functional.value))):
            yield solved

    def variances(self, functional: Functional, part: slice) -> np.ndarray:
        """Return the diagonal of G H⁻¹ Gᵀ at some elements."""
        return self.blocks(functional, part, 1).ravel()

    def blocks(self, functional: Functional, part: slice, width: int) -> np.ndarray:
        """Return the blocks along the diagonal of G H⁻¹ Gᵀ, [blocks, width, width]."""
        count = part.stop - part.start
        if isinstance(self.inverse, Dense) and count > self.size:
            return self._blocks_by_parameter(functional, self.inverse, part, width)
        if isinstance(self.inverse, Arrow) and count > self.inverse.probe_count:
            arrow_blocks = self.inverse.blocks(functional, part, width)
            if arrow_blocks is not None:
                return arrow_blocks
        self.check_count(count, "this")
        batches = [
            np.einsum("bik,bjk->bij", *(rows.reshape(-1, width, self.size) for rows in pair))
            for pair in self._row_batches(functional, part, width)
        ]
        return np.concatenate([np.zeros([0, width, width]), *batches])

    def covariance(self, functional: Functional, rows: slice, columns: slice) -> np.ndarray:
        """Return G H⁻¹ Gᵀ of some elements (rows) with others (columns)."""
        if rows.stop - rows.start > columns.stop - columns.start:
            return self.covariance(functional, columns, rows).T
        self.check_size((rows.stop - rows.start) * (columns.stop - columns.start))
        self.check_count(rows.stop - rows.start, "the covariance")
        batches = [functional.jvp(solved)[:, columns] for solved in self.rows(functional, rows)]
        return np.concatenate([np.zeros([0, columns.stop - columns.start]), *batches])

    def check_size(self, count: int, remedy: str = REMEDY_FEWER) -> None:
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

    def _row_batches(
        self, functional: Functional, part: slice, multiple: int = 1
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield batches of rows of G and of G H⁻¹."""
        size = len(functional.value)
        batch = multiple * max(1, ENTRIES // max(self.size, size) // multiple)
        for start in range(part.start, part.stop, batch):
            indices = np.arange(start, min(start + batch, part.stop))
            unit = np.zeros([len(indices), size])
            unit[np.arange(len(indices)), indices] = 1
            jacobian_rows = functional.vjp(unit)
            yield jacobian_rows, self._solve_rows(jacobian_rows)

    def _solve_rows(self, rows: np.ndarray) -> np.ndarray:
        try:
            return self.inverse.solve(rows)
        except Undetermined as undetermined:
            shares = self.layout.share_by_site(undetermined.direction**2)[:3]
            names = ", ".join(f"'{name}'" for name, _ in shares)
            raise FlatDirection(
                f"the loss is flat along a direction of {names}: neither priors nor data determine "
                "it, so that this has no variance; give these sites narrower priors, or ask for "
                "what does not depend on them"
            ) from None

    def _blocks_by_parameter(
        self, functional: Functional, inverse: Dense, part: slice, width: int
    ) -> np.ndarray:
        """Return the same blocks with one product for each parameter instead of each element."""
        batch = max(1, ENTRIES // len(functional.value))
        blocks = np.zeros([(part.stop - part.start) // width, width, width])
        for start in range(0, inverse.root.shape[1], batch):
            columns = functional.jvp(inverse.root.T[start : start + batch])[:, part]
            parts = columns.reshape(len(columns), -1, width)
            blocks += np.einsum("kbi,kbj->bij", parts, parts)
        return blocks
