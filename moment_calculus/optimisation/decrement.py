"""What one more step of Newton's method would gain, from a Hessian or from its products alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

NULL = 1e-10  # curvature, relative to the largest, that is nothing but rounding
ROUNDING = 8.0  # units of rounding below which nothing can be seen
ACCURACY = 0.05  # of a decrement from products, relative; measured: it is met threefold
PATIENCE = 5  # least number of conjugate directions that must gain next to nothing


def newton_decrement(slope: np.ndarray, curvature: np.ndarray) -> float:
    """½ gᵀ H⁻¹ g; infinite where H has a negative direction.

    Directions in which H is nothing but rounding, as where parameters are redundant, count with
    the smallest curvature that is more than that.

    Args:
        slope: g, [n].
        curvature: H, [n, n].
    """
    if not (np.isfinite(slope).all() and np.isfinite(curvature).all()):
        return np.inf
    try:
        return 0.5 * float(slope @ cho_solve(cho_factor(curvature), slope))
    except LinAlgError:
        values, directions = np.linalg.eigh(curvature)
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
    """½ gᵀ H⁻¹ g by conjugate gradients; infinite where they meet a negative direction.

    What their directions gain adds up to the decrement from below. So they end as soon as it is
    more than enough, which far from an optimum the first one shows. Otherwise one per cent is
    aimed at, and directions in which the slope is zero are looked at too: at a saddle it may be.

    Args:
        slope: g, [n].
        product: H times a direction.
        enough: decrement above which it need not be known any better.
        precision: rounding unit of the products, relative.

    Source: Hestenes and Stiefel 1952, theorem 6:3; the estimate of what is left is that of
    Strakoš and Tichý 2002, the gains of the last directions.
    """
    gained = _gained(slope, product, enough, precision)
    if gained > enough or gained == np.inf:
        return gained
    anywhere = np.random.default_rng(0).normal(size=slope.size)
    return gained if _gained(anywhere, product, np.inf, precision) < np.inf else np.inf


def _gained(
    slope: np.ndarray,
    product: Callable[[np.ndarray], np.ndarray],
    enough: float,
    precision: float,
) -> float:
    """The decrement, or what is more than enough of it."""
    null = max(NULL, ROUNDING * precision)
    residual, largest = -slope, 0.0
    direction = residual
    gains: list[float] = []
    while not _settled(gains, enough) and (squared := float(residual @ residual)) != 0:
        bent, length = product(direction), float(direction @ direction)
        along = float(direction @ bent)
        largest = max(largest, along / length)
        nothing = null * largest * length
        if not along > -nothing or len(gains) > 2 * slope.size:  # or NaN
            return np.inf
        rate = squared / max(along, nothing)
        gains.append(0.5 * rate * squared)
        if along <= nothing:  # redundant parameters, and what is left of the slope is along them
            break
        residual = residual - rate * bent
        direction = residual + float(residual @ residual) / squared * direction
    return float(sum(gains))


def _settled(gains: list[float], enough: float) -> bool:
    """Whether it is more than enough, or the last third of the directions gained little."""
    total, last = sum(gains), max(PATIENCE, len(gains) // 3)
    return total > enough or (len(gains) > last and sum(gains[-last:]) <= ACCURACY * total)
