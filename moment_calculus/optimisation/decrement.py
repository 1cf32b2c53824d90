"""Newton decrements: what one more step of Newton's method would gain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

NULL = 1e-10  # curvatures below this share of the largest are rounding
ROUNDING = 8.0  # differences of fewer rounding units cannot be seen
ACCURACY = 0.05  # relative, of a decrement from products; measured errors are a third of it
PATIENCE = 5  # smallest number of conjugate directions that must gain almost nothing


def newton_decrement(slope: np.ndarray, hessian: np.ndarray) -> float:
    """Return ½ gᵀ H⁻¹ g of slope g [n], Hessian H [n, n]; infinite for a negative direction."""
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
    """Tell whether gains exceed ``enough``, or the last third of the directions gained little."""
    total, last = sum(gains), max(PATIENCE, len(gains) // 3)
    return total > enough or (len(gains) > last and sum(gains[-last:]) <= ACCURACY * total)
