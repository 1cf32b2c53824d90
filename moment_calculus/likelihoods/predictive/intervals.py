"""Quantiles under the posterior of the mean of an observation given its parameters, E[y|f]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from moment_calculus.likelihoods.drivers import Drivers, draw_arguments, drivers_of
from moment_calculus.likelihoods.trials import class_probability_functions
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quadrature import low_discrepancy
from moment_calculus.numerics.quantiles import empirical_quantile
from moment_calculus.numerics.special import (
    cast_clipped,
    constants,
    namespace,
    ndtri,
    to_float64,
)

QUANTILE_POINTS = 2048


def quantile_of_mean(
    mean: Callable[..., Array], arguments: Sequence[Any], levels: np.ndarray
) -> Array:
    """Return quantiles [levels, ...] of m(a, b, …), where at most two Gaussians are random.

    Closed form for a monotone function of one Gaussian; otherwise those of 2048 fixed
    points of equal weight. Measured error of the probability below a quantile: 5e-4 over
    one Gaussian, 2e-3 over two.
    """
    drivers = drivers_of(*arguments)
    if not drivers.gaussians:
        certain = mean(*arguments)
        return namespace(certain).stack([certain for _ in levels])
    values = mean(*draw_arguments(arguments, QUANTILE_POINTS, _noise(drivers)))
    found = empirical_quantile(values, levels)
    return found if len(drivers.gaussians) > 1 else _exact(mean, drivers, levels, values, found)


def _noise(drivers: Drivers) -> Callable[[tuple[int, ...]], Array]:
    """Return a function that gives standard normal points driver by driver; one is sorted."""
    mean = to_float64(drivers.gaussians[0].mean)
    columns = iter(low_discrepancy(QUANTILE_POINTS, len(drivers.gaussians)).T)
    return lambda shape: (
        constants(next(columns).reshape((-1,) + (1,) * (len(shape) - 1)), mean)
        + namespace(mean).zeros_like(mean)
    )


def _exact(
    mean: Callable[..., Array], drivers: Drivers, levels: np.ndarray, values: Array, found: Array
) -> Array:
    """Return the function at quantiles of its Gaussian where it is monotone, else ``found``."""
    xp, (driver,) = namespace(values), drivers.gaussians
    steps = ndtri(levels).reshape((-1,) + (1,) * len(driver.shape))
    centre, scale = to_float64(driver.mean), to_float64(driver.variance) ** 0.5
    ends = np.concatenate([steps, -steps])  # for rising functions, and for falling ones
    reached = mean(*drivers.at([centre + scale * constants(ends, centre)]))
    upward, downward = reached[: len(levels), ...], reached[len(levels) :, ...]
    rises = values[1:, ...] - values[:-1, ...]
    falling = xp.where(xp.all(rises <= 0, axis=0), downward, found)
    exact = xp.where(xp.all(rises >= 0, axis=0), upward, falling)
    return cast_clipped(exact, driver.mean)


def quantile_of_ordered(predictor: Any, cutpoints: Array, levels: np.ndarray) -> Array:
    """Return quantiles [levels, ..., classes] of an ordered logistic's class probabilities."""
    shares = class_probability_functions(cutpoints)
    parts = [quantile_of_mean(share, [predictor], levels) for share in shares]
    return namespace(parts[0]).stack(parts, axis=-1)
