"""Check that parameters are an optimum of a loss, and invert the Hessian there."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from moment_calculus.optimisation.rounds import DeterministicLoss
from moment_calculus.response.errors import Indefinite, NotAnOptimum
from moment_calculus.response.latents import ParameterLayout
from moment_calculus.response.solvers.arrow import Arrow
from moment_calculus.response.solvers.conjugate_gradients import ConjugateGradients
from moment_calculus.response.solvers.dense import Dense

DENSE = 3000  # most parameters for which the dense Hessian is computed
WORTH = 4  # factor by which an arrow must take fewer products than a dense matrix
TOLERANCE = 1e-3  # nats that one more step of Newton's method may gain

REMEDY = 'train it further by fit(..., method="newton"), in double precision by float64=True'


class InverseHessian(Protocol):
    """The inverse Hessian H⁻¹ at the optimum.

    Args:
        is_iterative: whether each row takes iterations of its own.
    """

    is_iterative: bool

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Rows [k, n] times H⁻¹, [k, n]."""

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """The same, without the parts of rows along directions in which H is flat."""

    def diagonal(self) -> np.ndarray | None:
        """The diagonal of H⁻¹, [n]; None if each element takes a solution of its own."""

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draws from N(0, H⁻¹), [count, n]."""


def inverse_hessian(
    objective: DeterministicLoss, parameters: np.ndarray, layout: ParameterLayout, tolerance: float
) -> tuple[InverseHessian, float]:
    """Return H⁻¹ at parameters [n] and the Newton decrement; raise NotAnOptimum if none."""
    loss, slope = objective.value_and_slope(parameters)
    if not (np.isfinite(loss) and np.isfinite(slope).all()):
        raise NotAnOptimum(
            f"the loss is {loss:.6g}, or its slope is not finite: look for NaN among data and "
            "parameters, and for observations outside their support"
        )
    try:
        inverse = _inverse(objective, parameters, layout)
        (step,) = inverse.solve_ignoring_flat(slope[None])
    except Indefinite as indefinite:
        raise _saddle(indefinite, objective, parameters, layout) from None
    return inverse, _checked_decrement(slope, step, layout, tolerance)


def _inverse(
    objective: DeterministicLoss, parameters: np.ndarray, layout: ParameterLayout
) -> InverseHessian:
    product = partial(objective.hessian_product, parameters)
    for partition in layout.partitions():
        if partition.products * WORTH <= min(parameters.size, WORTH * DENSE):
            arrow = Arrow.of(product, partition, objective.precision)
            if arrow is not None:
                return arrow
    if parameters.size <= DENSE:
        return Dense(objective.hessian(parameters), objective.precision)
    inverse = ConjugateGradients(product, objective.units(parameters), objective.precision)
    # Solving for a random row meets directions of negative curvature, if there are any.
    inverse.solve_ignoring_flat(np.random.default_rng(0).normal(size=[1, parameters.size]))
    return inverse


def _checked_decrement(
    slope: np.ndarray, step: np.ndarray, layout: ParameterLayout, tolerance: float
) -> float:
    decrement = float(slope @ step) / 2
    if decrement <= tolerance:
        return decrement
    sites = _sites(layout, np.maximum(slope * step, 0))
    raise NotAnOptimum(
        f"the parameters are no optimum: the Newton decrement is {decrement:.2g} nats, above "
        f"{tolerance:g}, most of it at {sites}; linear response is about an optimum: {REMEDY}"
    )


def _saddle(
    indefinite: Indefinite,
    objective: DeterministicLoss,
    parameters: np.ndarray,
    layout: ParameterLayout,
) -> NotAnOptimum:
    units = objective.units(parameters)
    if parameters.size > DENSE:
        indefinite = _lowest(objective, parameters, units) or indefinite
    direction = indefinite.direction / np.where(units > 0, units, 1)
    curvature = (
        indefinite.direction
        @ objective.hessian_product(parameters, indefinite.direction)
        / (direction @ direction)
    )
    sites = _sites(layout, direction**2)
    return NotAnOptimum(
        "the parameters are no optimum: the loss curves downwards along a direction of "
        f"{sites} (eigenvalue {curvature:.2g}, in units of the guide's scales); linear response "
        f"is about an optimum: {REMEDY}"
    )


def _lowest(
    objective: DeterministicLoss, parameters: np.ndarray, units: np.ndarray
) -> Indefinite | None:
    """Return the lowest direction of a large Hessian; None if it does not curve downwards."""
    product = lambda v: units * objective.hessian_product(parameters, units * np.ravel(v))  # noqa: E731
    operator = LinearOperator((parameters.size, parameters.size), product, dtype=np.float64)
    start = np.random.default_rng(0).normal(size=parameters.size)
    try:
        values, directions = eigsh(operator, k=1, which="SA", tol=1e-2, v0=start, maxiter=300)
    except ArpackError:
        return None
    return Indefinite(values[0], units * directions[:, 0]) if values[0] < 0 else None


def _sites(layout: ParameterLayout, amounts: np.ndarray) -> str:
    """Return the names of the sites with the largest shares, for a message."""
    shares = [(name, share) for name, share in layout.share_by_site(amounts)[:3] if share >= 0.05]
    named = ", ".join(f"'{name}' ({share:.0%})" for name, share in shares)
    return f"site{'s' * (len(shares) > 1)} {named}"
