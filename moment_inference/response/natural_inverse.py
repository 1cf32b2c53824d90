"""The inverse Hessian of a Gaussian with covariances, in its local coordinates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from moment_inference.errors import Indefinite, Undetermined
from moment_inference.optimisation.natural_newton import Neighbourhood, units_of_rest
from moment_inference.optimisation.rounds import DeterministicLoss
from moment_inference.response.banded_inverse import BandedInverse, pays
from moment_inference.response.solvers import MOST, ConjugateGradients, Product

OWN = 0.5  # least share of a residual that no kept direction explains
MOST_KEPT = 2**24  # numbers of directions that are kept for the next rows


class RecycledGradients(ConjugateGradients):
    """Conjugate gradients that begin each row with the directions of those before.

    All rows together take no more products than there are coordinates, and few if the curvature
    differs from one along few directions only.
    """

    def __init__(self, product: Product, size: int, precision: float) -> None:
        super().__init__(product, np.ones(size), precision)
        self._most = max(1, MOST_KEPT // size)
        self._directions, self._images = np.zeros([0, size]), np.zeros([0, size])
        self._curvatures = np.zeros(0)

    def _solution(self, row: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the solution and None; without one a nearly flat direction."""
        solution, residual, last = np.zeros_like(row), row, np.inf
        enough = self._accuracy * float(np.linalg.norm(row))
        for _ in range(MOST):
            along = (self._directions @ residual) / self._curvatures
            solution, residual = (
                solution + along @ self._directions,
                residual - along @ self._images,
            )
            length = float(np.linalg.norm(residual))
            direction = self._conjugate(self._conjugate(residual))  # once is not enough
            is_spent = len(self._curvatures) == len(row)
            is_error = float(direction @ residual) < OWN * length**2  # of the products
            if length <= enough or ((is_spent or is_error) and length > last / 2):
                return solution, None
            last = length
            if not (is_spent or is_error):
                direction = direction / float(np.linalg.norm(direction))
                try:
                    self._keep(direction, self._checked(direction))
                except Undetermined as undetermined:
                    return np.zeros_like(row), undetermined.direction
        return solution, solution

    def _conjugate(self, direction: np.ndarray) -> np.ndarray:
        """Return a direction without what lies along those that are kept."""
        return direction - (self._images @ direction / self._curvatures) @ self._directions

    def _keep(self, direction: np.ndarray, image: np.ndarray) -> None:
        """Keep a direction for the next ones, in place of the oldest if there are too many."""
        self._directions = np.vstack([self._directions, direction])[-self._most :]
        self._images = np.vstack([self._images, image])[-self._most :]
        self._curvatures = np.append(self._curvatures, direction @ image)[-self._most :]


class NaturalInverse:
    """H⁻¹ = J A⁻¹ Jᵀ, where A is the Hessian by the local coordinates of the Gaussian.

    J is the Jacobian of the parameters by these at the optimum. There A = I − E″ where E″ is
    the Hessian of E log p. Of blocks A is written down from a few products, however many there
    are; else conjugate gradients take few products for a solution.
    """

    has_flat_directions = False  # none is known before a row meets it

    def __init__(self, objective: DeterministicLoss, parameters: np.ndarray) -> None:
        assert objective.gaussian is not None
        units = units_of_rest(objective, objective.gaussian, parameters)
        around = Neighbourhood.of(objective, objective.gaussian, parameters, units)
        self._map, self._origin = around.map, np.zeros(around.map.size)
        with self._directions():
            inner = BandedInverse.of(around, objective.precision) if pays(around) else None
        self._inner = inner or RecycledGradients(
            around.product, around.map.size, objective.precision ** (2 / 3)
        )
        self.is_iterative = inner is None

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times H⁻¹; raise Undetermined for flat directions."""
        with self._directions():
            return self._outer(self._inner.solve(self._local(rows)))

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return rows times H⁻¹ without their parts along flat directions."""
        with self._directions():
            return self._outer(self._inner.solve_ignoring_flat(self._local(rows)))

    def diagonal(self) -> np.ndarray | None:
        """Return the diagonal of H⁻¹ at the means, and infinity elsewhere; None if unknown."""
        if isinstance(self._inner, RecycledGradients):
            return None
        result: np.ndarray = np.full(self._map.parameters.size, np.inf)
        places = [part.locs.ravel() for part in self._map.parameters.parts]
        result[np.concatenate(places)] = self._inner.variances_of_means()
        return result

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, H⁻¹), [count, n]."""
        return self._outer(self._inner.draws(generator, count))

    @contextmanager
    def _directions(self) -> Iterator[None]:
        """Take directions that errors name to the parameters."""
        try:
            yield
        except Undetermined as undetermined:
            raise Undetermined(self._map.direction(undetermined.direction)) from None
        except Indefinite as indefinite:
            direction = self._map.direction(indefinite.direction)
            raise Indefinite(indefinite.eigenvalue, direction) from None

    def _local(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._map.gradient(self._origin, row) for row in rows])

    def _outer(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self._map.direction(row) for row in rows])
