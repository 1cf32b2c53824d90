"""Evaluate chains of elementwise functions at fixed points with NumPy.

A chain whose constants are known numbers is a plain function of float64 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

TAILS = np.array([-31.7, -17.3, -9.1, -4.3, 4.1, 8.9, 16.7, 30.3])
_STEPS = np.geomspace(1e-4, 1.1e3, 400)
GRID = np.unique(np.concatenate([-_STEPS, _STEPS, np.linspace(-50.0, 50.0, 2001) + 1e-6]))


def values_at(activation: Any, points: np.ndarray) -> np.ndarray | None:
    """Return the values at float64 points [n]; None if a function depends on more than numbers."""
    if getattr(activation, "constants", frozenset()) is None:
        return None
    try:
        with np.errstate(all="ignore"):
            values = activation(points)
    except (RuntimeError, TypeError, ValueError):  # arrays of another framework or shape
        return None
    plain = type(values) is np.ndarray and values.shape == points.shape
    return values if plain and values.dtype == np.float64 else None


def crossings(activation: Any, level: float) -> tuple[tuple[float, float], ...]:
    """Find where a function crosses a level within ±1100, and |dx/df| there, by bisection.

    Two crossings closer than the points of the grid (1/20 up to 50, 4 % beyond) may be
    missed.
    """
    values = values_at(activation, GRID)
    if values is None:
        return ()
    above = values > level
    (places,) = np.nonzero(above[1:] != above[:-1])
    low, high, start = GRID[places], GRID[places + 1], above[places]
    slopes = np.abs((values[places + 1] - values[places]) / (high - low))
    for _ in range(60):
        middle = (low + high) / 2
        found = values_at(activation, middle)
        same = (found > level) == start if found is not None else start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    stretch = 1 / np.clip(slopes, 1e-3, 1e3)
    return tuple(zip(low.tolist(), stretch.tolist(), strict=True))


def agrees_in_the_tails(activation: Any, match: Any) -> bool:
    """Return whether two functions agree relatively at :data:`TAILS`, where they may be small.

    Absolute agreement would not show that both are positive there.
    """
    first, second = values_at(activation, TAILS), values_at(match, TAILS)
    return (
        first is not None and second is not None and np.allclose(first, second, rtol=1e-3, atol=0)
    )
