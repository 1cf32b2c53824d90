"""One entry of a dump: the numbers that a call gives, its warnings, and its error."""

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

PLACES = re.compile(r"(/[\w.+-]+)+/|0x[0-9a-f]+|line \d+|:\d+\b")


def recorded(compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Numbers by name, and texts without paths, lines and addresses."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            numbers, error = compute(), []
        except Exception as raised:
            numbers, error = {}, [f"{type(raised).__name__}: {raised}"]
    texts = {f"{w.category.__name__}: {w.message}" for w in caught if _ours(w.category)}
    return {
        "numbers": {name: np.asarray(value).tolist() for name, value in numbers.items()},
        "texts": [PLACES.sub("", text) for text in [*sorted(texts), *error]],
    }


def _ours(category: type) -> bool:
    return category.__module__.split(".")[0] in ("moment_calculus", "pyro_moments")


def difference_of_numbers(
    before: dict[str, Any], after: dict[str, Any], tolerance: float, floor: float = 0.0
) -> str:
    """What differs between arrays of the same names; nothing if they agree."""
    if before.keys() != after.keys():
        return f"{sorted(before)} and {sorted(after)}"
    errors = {
        name: _error(np.asarray(value), np.asarray(after[name]), floor)
        for name, value in before.items()
    }
    wrong = {name: error for name, error in errors.items() if not error <= tolerance}
    return f"relative differences {wrong}" if wrong else ""


def _error(before: np.ndarray, after: np.ndarray, floor: float) -> float:
    """The largest difference, relative to the largest element; infinite for other shapes.

    Differences below ``floor`` are rounding.
    """
    if before.shape != after.shape or (np.isfinite(before) != np.isfinite(after)).any():
        return np.inf
    before, after = np.nan_to_num(before), np.nan_to_num(after)
    largest, scale = np.abs(before - after).max(initial=0.0), np.abs(before).max(initial=0.0)
    if largest <= floor:
        return 0.0
    return float(largest / scale) if scale else 1.0
