"""Predictions of a LogNormal likelihood, from those of the Normal likelihood of its logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from moment_calculus.likelihoods.expectations import moments_of_observation
from moment_calculus.likelihoods.normal import normal_log_predictive, normal_predictive
from moment_calculus.likelihoods.predictive.cumulative import normal_cumulative, normal_marginal
from moment_calculus.likelihoods.predictive.existence import (
    INFINITE_DISTANCE,
    infinite_where,
    limits_at_infinity,
)
from moment_calculus.likelihoods.predictive.intervals import quantile_of_mean
from moment_calculus.likelihoods.residual import check_positive
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace, to_float64
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.predictions.marginals import ContinuousMarginal, Marginal, PredictiveMoments

MEAN, EPISTEMIC, ALEATORIC = 1.0, 0.5**0.5, 0.5  # infinite from these slopes of the scale on


@dataclass(frozen=True)
class LogNormalMarginal(ContinuousMarginal):
    """Predictive distribution of an observation, from that of its logarithm."""

    logs: Marginal = None  # type: ignore[assignment]
    # The predictive moments of the logarithm, in double precision.
    log_moments: Callable[[], PredictiveMoments] = None  # type: ignore[assignment]

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return the exponential of the logarithm's quantiles."""
        quantiles = self.logs.quantile(levels, self._of_log(moments))
        return namespace(quantiles).exp(quantiles)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return H[y] = H[log y] + E[log y]."""
        logs = self._of_log(moments)
        return self.logs.entropy(logs) + logs.mean

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the mutual information of the logarithm, which is the same."""
        return self.logs.mutual_information(self._of_log(moments))

    def _of_log(self, moments: PredictiveMoments) -> PredictiveMoments:
        """Return the moments of the logarithm, broadcast to arrays of the framework."""
        zero = namespace(moments.mean).zeros_like(moments.mean)
        return PredictiveMoments(*(part + zero for part in self.log_moments()))


def log_normal_marginal(name: str, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a LogNormal likelihood at site ``name``."""
    return LogNormalMarginal(
        name,
        "LogNormal",
        partial(_cumulative, loc=loc, scale=scale),
        partial(_log_density, loc=loc, scale=scale),
        (0.0, math.inf),
        logs=normal_marginal(name, loc, scale),
        log_moments=lambda: PredictiveMoments(*map(to_float64, normal_predictive(loc, scale))),
        mean_quantile=partial(quantile_of_mean, _mean, [loc, scale]),
    )


def log_normal_predictive(loc: Any, scale: Any) -> tuple:
    """Return predictive mean, epistemic and aleatoric variance, and log predictive density.

    The mean of exp(s²/2) is infinite if the scale s is an exponential of a Gaussian,
    however narrow. If s grows by k per standard deviation of its Gaussian (softplus), the
    mean is infinite from k = 1 on, the epistemic variance from 0.71 on and the aleatoric
    one from 0.5 on.
    """
    if is_value(scale):
        check_positive(scale)
    moments = moments_of_observation(_mean, _variance, loc, scale)
    limits = zip(moments, (MEAN, EPISTEMIC, ALEATORIC), strict=True)
    finite_or_infinite = (_infinite_where_steep(part, scale, limit) for part, limit in limits)
    return *finite_or_infinite, partial(_log_density, loc=loc, scale=scale)


def _mean(loc: Array, scale: Any) -> Array:
    total = loc + scale * scale / 2
    return namespace(total).exp(total)


def _variance(loc: Array, scale: Any) -> Array:
    mean = _mean(loc, scale)
    square = scale * scale + 0 * mean
    return namespace(mean).expm1(square) * mean * mean


def _infinite_where_steep(part: Array, scale: Any, limit: float) -> Array:
    if not is_value(scale):
        return part
    xp, slopes = (
        namespace(part),
        [limit_slope / INFINITE_DISTANCE for limit_slope in limits_at_infinity(scale)],
    )
    diverges = (scale.base.variance > 0) & (xp.maximum(*slopes) >= limit)
    return infinite_where(diverges, part)


def _log_density(value: Array, *, loc: Any, scale: Any) -> Array:
    logs = namespace(value).log(value)
    return normal_log_predictive(logs, loc, scale) - logs


def _cumulative(value: Array, *, loc: Any, scale: Any) -> Array:
    xp = namespace(value)
    inside = value > 0
    probability = normal_cumulative(xp.log(xp.where(inside, value, 1.0)), loc, scale)
    return xp.where(inside, probability, 0.0)
