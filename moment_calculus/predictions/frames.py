"""Predictions as data frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from moment_calculus.errors import optional_package
from moment_calculus.numerics.arrays import standard_deviation, to_numpy


def frame_of_classes(site: Any) -> Any:
    """Return a ``pandas.DataFrame`` of class probabilities, one row for each element."""
    probabilities = to_numpy(site.mean)
    *elements, classes = probabilities.shape
    table = probabilities.reshape(-1, classes)
    columns = {f"probability of {k}": table[:, k] for k in range(classes)}
    return _frame({**columns, "variation_ratio": to_numpy(site.variation_ratio)}, tuple(elements))


def frame_of_moments(site: Any, mass: float | None) -> Any:
    """Return a ``pandas.DataFrame`` of moments and intervals, one row for each element."""
    columns = {
        "mean": site.mean,
        "sd": standard_deviation(site.variance),
        "epistemic_sd": standard_deviation(site.epistemic_variance),
        "aleatoric_sd": standard_deviation(site.aleatoric_variance),
    }
    if mass is not None:
        ends = zip((50 - 50 * mass, 50 + 50 * mass), site.interval(mass), strict=True)
        columns |= {f"{level:.3g}%": end for level, end in ends}
    arrays = {name: to_numpy(column) for name, column in columns.items()}
    return _frame(arrays, tuple(site.mean.shape))


def _frame(columns: dict[str, np.ndarray], shape: tuple[int, ...]) -> Any:
    pandas = optional_package("pandas", "tables need pandas")
    flat = {name: np.broadcast_to(column, shape).reshape(-1) for name, column in columns.items()}
    frame = pandas.DataFrame(flat)
    if len(shape) > 1:
        axes = [f"axis {axis}" for axis in range(len(shape))]
        frame.index = pandas.MultiIndex.from_product(map(range, shape), names=axes)
    return frame
