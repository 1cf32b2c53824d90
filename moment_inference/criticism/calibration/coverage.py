"""Validate observations, and count those inside predictive intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array, device, has_double, namespace, to_numpy
from moment_calculus.predictions.site import PredictedSite
from moment_inference.display import numeric_table


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
    """Return observations as float64; raise ValueError for wrong shapes or NaN."""
    values, site = to_numpy(y, np.float64), f"site {prediction.name!r}"
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
    ends = (to_numpy(bound, np.float64) for bound in marginal.bounds)
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


def check_known(prediction: PredictedSite, probabilities: np.ndarray) -> None:
    """Raise ValueError if predictive probabilities are NaN."""
    unknown = np.isnan(probabilities)
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


def to_framework(values: np.ndarray, like: Array) -> Array:
    """Return a NumPy array in framework, device and precision of another array."""
    xp, dtype = namespace(like), None
    if np.issubdtype(values.dtype, np.floating):
        # A fit in double precision may have left doubles where JAX makes none.
        dtype = like.dtype if has_double(like) else xp.float32
    return xp.asarray(values, dtype=dtype, device=device(like))


SIGNIFICANT = 0.05  # significance level of the verdicts


@dataclass(frozen=True, eq=False)
class Coverage:
    """Shares of observations inside their central predictive intervals, [masses] each."""

    mass: np.ndarray  # nominal probability of the intervals
    expected: np.ndarray  # mean predictive probability inside: the mass, more for counts
    observed: np.ndarray  # share of the observations inside
    standard_error: np.ndarray  # of the share, √(c(1 − c)/n), for independent observations
    p_value: np.ndarray  # exact binomial test of the share; conservative for counts

    def __str__(self) -> str:
        """Return a table."""
        names = ("interval", "expected", "inside", "± s.e.", "p")
        formats = zip(names, (">8.4g", ">8.3f", ">8.3f", ">7.3f", ">7.2g"), strict=True)
        return numeric_table(dict(formats), zip(*vars(self).values(), strict=True))

    def verdict(self) -> str:
        """Return in words what the widest requested interval says about the prediction."""
        last = int(np.argmax(self.mass))
        mass, expected, observed = (
            100 * float(part[last]) for part in (self.mass, self.expected, self.observed)
        )
        error, p_value = 100 * float(self.standard_error[last]), float(self.p_value[last])
        sentence = f"{mass:.4g} % intervals hold {observed:.3g} ± {error:.2g} % of the observations"
        if abs(expected - mass) > 0.05:
            sentence += f", and {expected:.3g} % of the predictive probability"
        if p_value >= SIGNIFICANT:
            return f"{sentence}: as many as they should, within chance (p = {p_value:.2g})"
        wrong = "narrow" if observed < expected else "wide"
        return f"{sentence}: the predictive distribution is too {wrong} (p = {p_value:.2g})"


def coverage_of(
    masses: Sequence[float], expected: Sequence[float], inside: Sequence[np.ndarray]
) -> Coverage:
    """Return the coverage, given for each interval which observations are inside."""
    from scipy.stats import binomtest  # slow to import

    hits, count = [int(part.sum()) for part in inside], inside[0].size
    share = np.asarray(hits) / count
    likely = [
        binomtest(hit, count, min(float(p), 1.0)).pvalue
        for hit, p in zip(hits, expected, strict=True)
    ]
    return Coverage(
        np.asarray(masses, np.float64),
        np.asarray(expected, np.float64),
        share,
        np.sqrt(share * (1 - share) / count),
        np.asarray(likely),
    )


def checked_masses(masses: float | Sequence[float]) -> list[float]:
    """Return masses as a list; raise ValueError if one is not between 0 and 1."""
    result = np.atleast_1d(np.asarray(masses, np.float64))
    if result.ndim > 1 or not result.size or not ((result > 0) & (result < 1)).all():
        raise ValueError(f"masses of intervals are numbers between 0 and 1, not {masses!r}")
    return [float(mass) for mass in result]
