"""Data frames: of predictions, and as matrices of numbers."""

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


def is_frame(value: Any) -> bool:
    """Return whether a value is a data frame, of columns with names."""
    return hasattr(value, "columns") and hasattr(value, "to_numpy")


def numeric(name: str, array: np.ndarray) -> np.ndarray:
    """Return an array of numbers; raise TypeError for text and other objects."""
    if array.dtype.kind in "biufc":
        return array
    if array.dtype.kind == "O" and all(isinstance(item, int | float) for item in array.flat):
        return np.array(array.tolist())
    first = array.flat[0] if array.size else None
    kind = "text" if isinstance(first, str) else f"objects of type {array.dtype}"
    raise TypeError(
        f"argument '{name}' holds {kind}, such as {str(first)!r}, not numbers: pass numbers, and "
        "count labels from 0 (np.unique(labels, return_inverse=True)[1]), or make columns of zeros "
        "and ones of it (pandas.get_dummies)"
    )


def matrix_of_frame(name: str, frame: Any) -> np.ndarray:
    """Return the columns of a frame, [rows, columns]."""
    columns = [numeric(f"{name}['{key}']", frame[key].to_numpy()) for key in frame.columns]
    return np.stack(columns, axis=-1)


def with_gaps(value: Any, name: str = "x") -> Any:
    """Return a frame, one of its columns or a list as an array of floats with NaN for its gaps."""
    if is_frame(value):
        columns = [with_gaps(value[key], f"{name}['{key}']") for key in value.columns]
        return np.stack(columns, axis=-1)
    if hasattr(value, "to_numpy"):
        gaps = value.isna() if hasattr(value, "isna") else value.is_null()  # pandas, polars
        known = ~np.asarray(gaps, bool)
        column = np.full(known.shape, np.nan)
        column[known] = numeric(name, np.asarray(value.to_numpy()[known]))
        return column
    return np.asarray(value, float) if isinstance(value, list) else value
