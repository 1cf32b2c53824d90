"""The inverse Hessian of a Gaussian with covariances, in its local coordinates."""

from __future__ import annotations

import numpy as np

from moment_inference.optimisation.natural_newton import Neighbourhood
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.response.solvers import ConjugateGradients


class NaturalInverse:
    """H⁻¹ = J A⁻¹ Jᵀ by conjugate gradients with A, the Hessian by the local coordinates.

    J is the Jacobian of the parameters by these at the optimum. There A = I − E″ where E″ is
    the Hessian of E log p, so that a solution takes few products, however many parameters
    there are.
    """

    is_iterative = True
    has_flat_directions = False  # none is known before a row meets it

    def __init__(self, objective: DeterministicLoss, parameters: np.ndarray) -> None:
        assert objective.gaussian is not None
        units = objective.units(parameters)[objective.gaussian.rest]
        around = Neighbourhood.of(objective, objective.gaussian, parameters, units)
        self._map, self._origin = around.map, np.zeros(around.map.size)
        self._inner = ConjugateGradients(
            around.product, np.ones(around.map.size), objective.precision ** (2 / 3)
        )

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for flat directions."""
        return self._outer(self._inner.solve(self._local(rows)))

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return rows times H⁻¹ without their parts along flat directions."""
        return self._outer(self._inner.solve_ignoring_flat(self._local(rows)))

    def diagonal(self) -> None:
        """Return None: the diagonal is not known."""

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        return self._outer(self._inner.draws(generator, count))

    def _local(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._map.gradient(self._origin, row) for row in rows])

    def _outer(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._map.direction(row) for row in rows])
