"""Validate observations and their prediction, and convert arrays between frameworks and NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, device
from moment_calculus.numerics.special import namespace
from moment_calculus.predictions.site import PredictedSite


def checked_prediction(prediction: Any) -> PredictedSite:
    """Return the prediction of one site; raise TypeError if it is something else."""
    if isinstance(prediction, PredictedSite):
        return prediction
    if isinstance(prediction, Mapping):
        names = ", ".join(name for name, p in prediction.items() if isinstance(p, PredictedSite))
        raise TypeError(
            "calibration is of one site, not of the dictionary that predict returns: pass one of "
            f"its predictions, predict(…)[name]; it has {names or 'none that is observed'}"
        )
    raise TypeError(
        f"calibration is of a Prediction, not of a {type(prediction).__name__}: pass "
        "predict(…)[name] of a site that the model observes"
    )


def checked_values(prediction: PredictedSite, y: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return observations in double precision; raise ValueError if the shape is wrong or on NaN."""
    values, site = np.asarray(to_numpy(y), np.float64), f"site {prediction.name!r}"
    if values.shape != shape:
        raise ValueError(
            f"{site}: the observations have the shape {values.shape}, their predictions {shape}; "
            "predict the rows that were observed, and pass as many observations"
        )
    if not values.size:
        raise ValueError(f"{site}: there are no observations, of which to check the prediction")
    missing = np.isnan(values)
    if missing.any():
        raise ValueError(
            f"{site}: {missing.sum()} of {values.size} observations are NaN, {first(missing)}; "
            "leave their rows out of the prediction and of the observations"
        )
    return values


def check_support(prediction: PredictedSite, values: np.ndarray, *, whole: bool) -> None:
    """Raise ValueError for observations outside the support of their prediction."""
    marginal = prediction.marginal
    ends = (np.asarray(to_numpy(bound), np.float64) for bound in marginal.bounds)
    low, high = (np.broadcast_to(end, values.shape) for end in ends)
    outside = (values < low) | (values > high)
    if whole:
        outside |= values != np.floor(values)
    if outside.any():
        kind = "a whole number" if whole else "a number"
        raise ValueError(
            f"site {prediction.name!r}: {outside.sum()} of {values.size} observations are outside "
            f"the support of the {marginal.family}, {first(outside)}: {values[outside][0]:g} is "
            f"not {kind} between {low[outside][0]:g} and {high[outside][0]:g}; observe what the "
            "model predicts, in the same units"
        )


def check_known(prediction: PredictedSite, found: np.ndarray) -> None:
    """Raise ValueError if predictive probabilities are NaN."""
    unknown = np.isnan(found)
    if unknown.any():
        raise ValueError(
            f"site {prediction.name!r}: the predictive probabilities of {unknown.sum()} of "
            f"{unknown.size} observations are NaN, {first(unknown)}; look at the prediction's "
            "mean and variance there, and at the inputs and the fit they come from"
        )


def first(where: np.ndarray) -> str:
    """Return in words the first index where a boolean array is true."""
    index = [int(i) for i in np.argwhere(where)[0]]
    return f"the first at index {index[0] if len(index) == 1 else tuple(index)}" if index else "it"


def to_numpy(array: Any) -> np.ndarray:
    """Return an array of any framework and device as NumPy array."""
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)


def to_framework(values: np.ndarray, like: Array) -> Array:
    """Return a NumPy array in framework, device and floating precision of another array."""
    dtype = like.dtype if np.issubdtype(values.dtype, np.floating) else None
    return namespace(like).asarray(values, dtype=dtype, device=device(like))
