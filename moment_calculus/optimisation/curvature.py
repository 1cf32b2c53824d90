"""What curvature tells of a place: the gain of a Newton step, and of saddles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh_tridiagonal

from moment_calculus.optimisation.rounds import DeterministicLoss, Round

NULL = 1e-10  # curvatures below this share of the largest are rounding
ROUNDING = 8.0  # differences of fewer rounding units cannot be seen
ACCURACY = 0.05  # relative, of a decrement from products; measured: a third of it
PATIENCE = 5  # smallest number of conjugate directions that must gain almost nothing


def newton_decrement(slope: np.ndarray, hessian: np.ndarray) -> float:
    """Return ½ gᵀ H⁻¹ g of g [n], H [n, n]; infinite for a negative direction."""
    if not (np.isfinite(slope).all() and np.isfinite(hessian).all()):
        return np.inf
    try:
        return 0.5 * float(slope @ cho_solve(cho_factor(hessian), slope))
    except LinAlgError:
        values, directions = np.linalg.eigh(hessian)
    # Directions that are nothing but rounding (redundant parameters) count with the
    # smallest curvature that is more.
    smallest = NULL * values[-1]
    if values[-1] <= 0 or values[0] < -smallest:
        return np.inf
    return 0.5 * float(((slope @ directions) ** 2 / np.maximum(values, smallest)).sum())


def decrement_by_products(
    slope: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    enough: float = np.inf,
    precision: float = 0.0,
) -> float:
    """Return ½ gᵀ H⁻¹ g by conjugate gradients; infinite if they meet a negative direction.

    Source: Hestenes and Stiefel 1952, theorem 6:3; the estimate of what is left is that
    of Strakoš and Tichý 2002, the gains of the last directions.
    """
    gained = _partial_decrement(slope, product, enough, precision)
    if gained > enough or gained == np.inf:
        return gained
    # At a saddle the slope may be zero in the negative direction: look in any direction,
    # too.
    anywhere = np.random.default_rng(0).normal(size=slope.size)
    return gained if _partial_decrement(anywhere, product, np.inf, precision) < np.inf else np.inf


def _partial_decrement(
    slope: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    enough: float,
    precision: float,
) -> float:
    """Return the decrement, or a part of it that is more than ``enough``."""
    null = max(NULL, ROUNDING * precision)
    residual, largest = -slope, 0.0
    direction = residual
    gains: list[float] = []
    # The gains of the directions add up to the decrement from below: far from an optimum
    # the first one is more than enough.
    while not _is_settled(gains, enough) and (squared := float(residual @ residual)) != 0:
        image, length = product(direction), float(direction @ direction)
        curvature = float(direction @ image)
        largest = max(largest, curvature / length)
        threshold = null * largest * length
        if not curvature > -threshold or len(gains) > 2 * slope.size:  # also if it is NaN
            return np.inf
        rate = squared / max(curvature, threshold)
        gains.append(0.5 * rate * squared)
        if curvature <= threshold:  # the rest of the slope is along redundant parameters
            break
        residual = residual - rate * image
        direction = residual + float(residual @ residual) / squared * direction
    return float(sum(gains))


def _is_settled(gains: list[float], enough: float) -> bool:
    """Tell whether gains are ``enough``, or the last third of them is little."""
    total, last = sum(gains), max(PATIENCE, len(gains) // 3)
    return total > enough or (len(gains) > last and sum(gains[-last:]) <= ACCURACY * total)


PRODUCTS = 24  # largest number of products of the Hessian with directions, each a slope
NEGATIVE = 1e-3  # negative curvatures below this share of the largest count as rounding
SETTLED = 1e-2  # relative change of the least curvature that counts as none
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
        if loss - sum(losses) / 2 > seen:  # on both sides: a slope lowers only one
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
