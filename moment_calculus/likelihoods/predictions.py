"""Predictions of Normal, Student-t, Cauchy and LogNormal likelihoods, over parameters and noise.

Also what all predictions need: moments that do not exist, and quantiles of the mean of an
observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from moment_calculus.likelihoods.expectations import (
    averaged_over,
    check_certain,
    expectation,
    expected_probability,
    expected_value,
    log_expectation,
    moments_of_observation,
)
from moment_calculus.likelihoods.links import log
from moment_calculus.likelihoods.location_scale import (
    check_positive,
    normal_log_predictive,
    normal_predictive,
    scaled_expectation,
    student_t_log_density,
)
from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    digamma,
    gammaln,
    namespace,
    ndtr,
    ndtri,
    safe_scale,
    to_float64,
)
from moment_calculus.numerics.distributions import empirical_quantile
from moment_calculus.numerics.quadrature import low_discrepancy, rule_on_trial
from moment_calculus.operations.elementwise.drivers import (
    Drivers,
    is_not_gaussian,
)
from moment_calculus.operations.elementwise.factors import joint_parameter
from moment_calculus.operations.elementwise.joint import draw_arguments, drivers_of
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.predictions.marginals import (
    ContinuousMarginal,
    Marginal,
    NormalMarginal,
    PredictiveMoments,
)
from moment_calculus.values import Deferred, Gaussian, Value

INFINITE_DISTANCE = 1e8  # standard deviations from the mean that count as infinitely far
SMALLEST_POSITIVE = 1e-300  # limit for parameters whose moments exist if they are positive


def limits_at_infinity(parameter: Value) -> tuple[Array, Array]:
    """Return a function 1e8 standard deviations below and above the mean.

    Of a function of several Gaussians these are the least and the largest limit.
    """
    if not isinstance(parameter, Deferred):
        return _limits_of_several(parameter)
    mean, deviation = (
        to_float64(parameter.base.mean),
        safe_scale(to_float64(parameter.base.variance)),
    )
    deviation = namespace(mean).where(parameter.base.variance > 0, deviation, 0.0)
    low, high = (
        parameter.function(mean + sign * INFINITE_DISTANCE * deviation) for sign in (-1, 1)
    )
    return low, high


def _limits_of_several(parameter: Gaussian) -> tuple[Array, Array]:
    drivers = drivers_of(parameter)
    ends = [
        [to_float64(d.mean) + far * safe_scale(to_float64(d.variance)) for d in drivers.gaussians]
        for far in (-INFINITE_DISTANCE, INFINITE_DISTANCE)
    ]
    corners = [drivers.at(points)[0] for points in product(*zip(*ends, strict=True))]
    xp = namespace(corners[0])
    return reduce(xp.minimum, corners), reduce(xp.maximum, corners)


def falls_below(parameter: Any, limit: float) -> Any:
    """Tell for each element whether a random parameter may be less than ``limit``."""
    if not isinstance(parameter, Deferred) and joint_parameter(parameter) is None:
        return False
    low, high = limits_at_infinity(parameter)
    xp = namespace(low)
    # A limit below the range of single precision would be zero there.
    return xp.minimum(low, high) < max(limit, float(xp.finfo(low.dtype).smallest_normal))


def infinite_where_undefined(
    moments: Sequence[Array], parameter: Any, limits: Sequence[float]
) -> list[Array]:
    """Return predictive mean, epistemic and aleatoric variance, infinite if they do not exist."""
    # Quadrature does not see beyond 14 standard deviations, where moments may cease to
    # exist.
    mean, variance = limits
    bounds = zip(moments, (mean, mean, variance), strict=True)
    return [infinite_where(falls_below(parameter, limit), part) for part, limit in bounds]


def infinite_where(condition: Any, array: Array, value: float = math.inf) -> Array:
    """Return ``array`` with ``value`` where a condition holds; False means nowhere."""
    return array if condition is False else namespace(array).where(condition, value, array)


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
    empirical = empirical_quantile(values, levels)
    if len(drivers.gaussians) > 1:
        return empirical
    return _exact(mean, drivers, levels, values, empirical)


def _noise(drivers: Drivers) -> Callable[[tuple[int, ...]], Array]:
    """Return a function that gives normal points by driver; one is sorted."""
    mean = to_float64(drivers.gaussians[0].mean)
    columns = iter(low_discrepancy(QUANTILE_POINTS, len(drivers.gaussians)).T)
    return lambda shape: (
        constants(next(columns).reshape((-1,) + (1,) * (len(shape) - 1)), mean)
        + namespace(mean).zeros_like(mean)
    )


def _exact(
    mean: Callable[..., Array],
    drivers: Drivers,
    levels: np.ndarray,
    values: Array,
    empirical: Array,
) -> Array:
    """Return the function at its Gaussian's quantiles if monotone, else ``empirical``."""
    xp, (driver,) = namespace(values), drivers.gaussians
    steps = ndtri(levels).reshape((-1,) + (1,) * len(driver.shape))
    centre, scale = to_float64(driver.mean), to_float64(driver.variance) ** 0.5
    ends = np.concatenate([steps, -steps])  # for rising functions, and for falling ones
    reached = mean(*drivers.at([centre + scale * constants(ends, centre)]))
    upward, downward = reached[: len(levels), ...], reached[len(levels) :, ...]
    rises = values[1:, ...] - values[:-1, ...]
    falling = xp.where(xp.all(rises <= 0, axis=0), downward, empirical)
    exact = xp.where(xp.all(rises >= 0, axis=0), upward, falling)
    return cast_clipped(exact, driver.mean)


def normal_entropy(scale: Any) -> Array:
    """Return E[H] of a Normal likelihood, ½ log(2πe) + E[log s]."""
    return 0.5 * math.log(2 * math.pi * math.e) + expected_value(log(scale))


def student_t_entropy(df: Any, scale: Any) -> Array:
    """Return E[H] of a Student-t likelihood with certain degrees of freedom ν.

    It is (ν + 1)/2 (ψ((ν + 1)/2) − ψ(ν/2)) + log(√ν B(ν/2, ½)) + E[log s].
    """
    check_certain(df=df)
    scales = expected_value(log(scale))
    like = next((part for part in (df, scales) if hasattr(part, "shape")), None)
    if like is None:
        raise TypeError("a Student likelihood without any array")
    df = constants(df, like) if isinstance(df, int | float) else df
    half, more = df / 2, (df + 1) / 2
    shape = more * (digamma(more) - digamma(half)) + 0.5 * namespace(df).log(df)
    return shape + gammaln(half) + gammaln(0 * df + 0.5) - gammaln(more) + scales


def student_t_predictive(df: Any, loc: Any, scale: Any) -> tuple:
    """Return predictive mean, epistemic and aleatoric variance, and log predictive density.

    A moment that does not exist is NaN (the mean) or infinite (the variance of the
    noise), however unlikely the degrees are for which it does not: exp(f) has no lower
    limit, 2 + exp(f) has one. The epistemic variance is that of the location, which
    exists.
    """
    check_positive(scale)
    parameters = loc, scale, df  # the location is the first driver
    centre, epistemic, aleatoric = moments_of_observation(
        lambda loc, scale, df: loc + _zeros(df, loc, scale), _noise_variance, *parameters
    )
    centre = infinite_where(
        falls_below(df, 1.0), centre + expectation(_nan_without_mean, *parameters), math.nan
    )
    aleatoric = infinite_where(falls_below(df, 2.0), aleatoric)
    log_density = partial(student_t_log_predictive, df=df, loc=loc, scale=scale)
    return centre, epistemic, aleatoric, log_density


def student_t_log_predictive(value: Array, df: Any, loc: Any, scale: Any) -> Array:
    """Return log E_q[StudentT(value; df, loc, scale)], by :func:`log_expectation`."""
    return log_expectation(student_t_log_density, value, loc, scale, df, knots=(0.0, value))


def _zeros(df: Any, loc: Any, scale: Any) -> Array:
    """Return zeros of the common shape."""
    zero = 0.0 * df + 0.0 * loc + 0.0 * scale
    return zero if hasattr(zero, "shape") else np.asarray(zero)


def _nan_without_mean(loc: Any, scale: Any, df: Any) -> Array:
    """Return NaN where there is no mean, else zero."""
    zero = _zeros(df, loc, scale)
    return namespace(zero).where(df + zero > 1, zero, math.nan)


def _noise_variance(loc: Any, scale: Any, df: Any) -> Array:
    """Return the variance of the noise; infinite for two degrees of freedom or less."""
    zero = _zeros(df, loc, scale)
    xp, df = namespace(zero), df + zero
    exists = df > 2
    factor = xp.where(exists, df / xp.where(exists, df - 2, 1.0), math.inf)
    return factor * (scale * scale)


def cauchy_predictive(loc: Any, scale: Any) -> tuple:
    """Return :func:`student_t_predictive` of one degree of freedom."""
    return student_t_predictive(1.0, loc, scale)


PRECISIONS, DEPTH = (
    256,
    28.0,
)  # nodes of the rule in _expected_student_t; it omits tails of e^−DEPTH


def _cumulative(expected: Callable, value: Array, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value), y = loc + scale·ε, from E[P(ε ≤ x)] = expected(mean, variance)."""

    def plain(x: Array) -> Array:
        return expected(x, 0 * x)

    if is_not_gaussian(loc):
        knots = (0.0, value)
        return expected_probability(
            lambda y, m, s: plain((y - m) / s), value, loc, scale, knots=knots
        )
    return scaled_expectation(expected, plain, value, loc, scale)


def normal_cumulative(value: Array, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value) of a Normal likelihood, over parameters and noise."""

    def expected(mean: Array, variance: Array) -> Array:
        return ndtr(to_float64(mean) / (1 + to_float64(variance)) ** 0.5)

    return _cumulative(expected, value, loc, scale)


def student_t_cumulative(value: Array, df: Any, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value) of a Student-t likelihood."""
    if is_value(df):
        rule = lambda df, *others: student_t_cumulative(others[0], df, *others[1:])  # noqa: E731
        return averaged_over(df, rule, value, loc, scale)
    return _cumulative(partial(_expected_student_t, df), value, loc, scale)


def _expected_student_t(df: Any, mean: Array, variance: Array) -> Array:
    """Return E[T(x)] of the standard Student-t distribution function T for Gaussian x.

    T is that of a Normal whose precision has a Gamma distribution: trapezoidal rule over
    log τ.
    """
    mean, variance = to_float64(mean), to_float64(variance)
    xp = namespace(mean)
    df = df + 0 * mean
    reach = 2 * DEPTH / df + 2 * (DEPTH / df) ** 0.5
    start, end = -reach, xp.log1p(reach)
    count = PRECISIONS
    if tried := rule_on_trial():
        tried.used, count = True, min(PRECISIONS, 8 * tried.count // 3)
    shares = np.linspace(0.0, 1.0, count).reshape((-1,) + (1,) * len(mean.shape))
    log_precision = start + (end - start) * constants(shares, mean)
    weights = xp.exp(df / 2 * (log_precision - xp.expm1(log_precision)))
    precision = xp.exp(log_precision)
    given = ndtr(mean * (precision / (1 + precision * variance)) ** 0.5)
    return xp.sum(weights * given, axis=0) / xp.sum(weights, axis=0)


def normal_marginal(name: str, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Normal likelihood at site ``name``."""
    if not is_not_gaussian(loc) and not is_value(scale):
        return NormalMarginal(name, "Normal")
    return ContinuousMarginal(
        name,
        "Normal",
        partial(normal_cumulative, loc=loc, scale=scale),
        partial(normal_log_predictive, loc=loc, scale=scale),
        expected_entropy=lambda: normal_entropy(scale),
        mean_quantile=partial(quantile_of_mean, _itself, [loc]),
    )


def student_t_marginal(name: str, df: Any, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Student-t likelihood at site ``name``."""
    return _student_marginal(name, "StudentT", df, loc, scale)


def _student_marginal(name: str, family: str, df: Any, loc: Any, scale: Any) -> Marginal:
    return ContinuousMarginal(
        name,
        family,
        partial(student_t_cumulative, df=df, loc=loc, scale=scale),
        partial(student_t_log_predictive, df=df, loc=loc, scale=scale),
        expected_entropy=lambda: student_t_entropy(df, scale),
        mean_quantile=partial(quantile_of_mean, _itself, [loc]),
    )


def _itself(loc: Array) -> Array:
    return loc


def cauchy_marginal(name: str, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Cauchy likelihood at site ``name``."""
    return _student_marginal(name, "Cauchy", 1.0, loc, scale)


MEAN, EPISTEMIC, ALEATORIC = 1.0, 0.5**0.5, 0.5  # infinite from these slopes of the scale on


@dataclass(frozen=True, kw_only=True)
class LogNormalMarginal(ContinuousMarginal):
    """Predictive distribution of an observation, from that of its logarithm."""

    logs: Marginal
    log_moments: Callable[[], PredictiveMoments]  # of the logarithm, in double precision

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
        partial(_log_normal_cumulative, loc=loc, scale=scale),
        partial(_log_normal_log_predictive, loc=loc, scale=scale),
        (0.0, math.inf),
        logs=normal_marginal(name, loc, scale),
        log_moments=lambda: PredictiveMoments(*map(to_float64, normal_predictive(loc, scale))),
        mean_quantile=partial(quantile_of_mean, _mean_of_exp, [loc, scale]),
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
    moments = moments_of_observation(_mean_of_exp, _variance_of_exp, loc, scale)
    limits = zip(moments, (MEAN, EPISTEMIC, ALEATORIC), strict=True)
    finite_or_infinite = (_infinite_where_steep(part, scale, limit) for part, limit in limits)
    return *finite_or_infinite, partial(_log_normal_log_predictive, loc=loc, scale=scale)


def _mean_of_exp(loc: Array, scale: Any) -> Array:
    total = loc + scale * scale / 2
    return namespace(total).exp(total)


def _variance_of_exp(loc: Array, scale: Any) -> Array:
    mean = _mean_of_exp(loc, scale)
    square = scale * scale + 0 * mean
    return namespace(mean).expm1(square) * mean * mean


def _infinite_where_steep(array: Array, scale: Any, limit: float) -> Array:
    if not is_value(scale):
        return array
    xp, slopes = (
        namespace(array),
        [limit_slope / INFINITE_DISTANCE for limit_slope in limits_at_infinity(scale)],
    )
    steep = xp.maximum(*slopes) >= limit
    random = scale.base.variance > 0 if isinstance(scale, Deferred) else scale.variance > 0
    diverges = random & steep
    return infinite_where(diverges, array)


def _log_normal_log_predictive(value: Array, *, loc: Any, scale: Any) -> Array:
    logs = namespace(value).log(value)
    return normal_log_predictive(logs, loc, scale) - logs


def _log_normal_cumulative(value: Array, *, loc: Any, scale: Any) -> Array:
    xp = namespace(value)
    inside = value > 0
    probability = normal_cumulative(xp.log(xp.where(inside, value, 1.0)), loc, scale)
    return xp.where(inside, probability, 0.0)
