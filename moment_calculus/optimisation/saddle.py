"""Saddles: places where a loss has no slope, but falls along a direction of negative curvature.

A product of two sites has no slope where both means are zero, which is where guides
begin.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh_tridiagonal

from moment_calculus.optimisation.decrement import ROUNDING
from moment_calculus.optimisation.rounds import DeterministicLoss, Round

PRODUCTS = 24  # largest number of products of the Hessian with directions, each a slope
NEGATIVE = 1e-3  # negative curvatures below this share of the largest count as rounding
SETTLED = 1e-2  # relative change of the least curvature in three products that counts as none
LENGTHS = (1.0, 0.25, 4.0)  # of the step off a saddle, in units of the scales


def step_off_saddle(
    objective: DeterministicLoss, place: np.ndarray, loss: float
) -> tuple[np.ndarray, float] | None:
    """Return a lower place beside a saddle, with its loss; None if ``place`` is no saddle.

    It takes at most 24 slopes for the least curvature, and six losses if that is
    negative. A place is a saddle only if the mean loss on both sides is lower by more
    than rounding, which excludes flat directions.
    """
    current = Round(objective, place)
    origin = np.zeros_like(place)
    slope = current.value_and_slope(origin)[1]
    if not np.isfinite(slope).all():
        return None
    # The third root balances the errors of rounding and of the third derivative.
    small = max(objective.precision, np.finfo(float).eps) ** (1 / 3)

    def product(direction: np.ndarray) -> np.ndarray:
        return (current.value_and_slope(small * direction)[1] - slope) / small

    direction = negative_direction(product, place.size)
    if direction is None:
        return None
    seen = max(1e-9, ROUNDING * objective.precision) * abs(loss)
    for length in LENGTHS:
        steps = [length * direction, -length * direction]
        losses = [current.value_and_slope(step)[0] for step in steps]
        if loss - sum(losses) / 2 > seen:  # on both sides: a remaining slope lowers one of them
            lower = int(np.argmin(losses))
            return current.place(steps[lower]), losses[lower]
    return None


def negative_direction(product: Callable[[np.ndarray], np.ndarray], size: int) -> np.ndarray | None:
    """Return a unit direction along which a symmetric matrix is clearly negative; None if none.

    Source: Lanczos 1950, with full orthogonalisation. The least eigenvalue that products
    show is above the true one: no negative one is invented, but a small one may stay
    hidden.
    """
    basis = [_unit(np.random.default_rng(0).normal(size=size))]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    least: list[float] = []
    while len(basis) <= min(PRODUCTS, size):
        image = product(basis[-1])
        if not np.isfinite(image).all():
            return None
        diagonal.append(float(basis[-1] @ image))
        values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(off_diagonal))
        least.append(float(values[0]))
        is_settled = len(least) > 3 and abs(least[-4] - least[-1]) <= SETTLED * abs(least[-1])
        rest = image - np.stack(basis).T @ (np.stack(basis) @ image)
        length = float(np.linalg.norm(rest))
        if is_settled or length <= NEGATIVE * abs(values).max():
            break
        off_diagonal.append(length)
        basis.append(_unit(rest - np.stack(basis).T @ (np.stack(basis) @ rest)))
    if least[-1] >= -NEGATIVE * abs(values).max():
        return None
    return _unit(vectors[:, 0] @ np.stack(basis[: len(diagonal)]))


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)
