"""Normal, log-normal and half-normal likelihoods of random locations and scales."""

from __future__ import annotations

import math
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.families.elementary import capped_exp, infinite_where_capped
from moment_calculus.likelihoods.expectations import (
    conditional,
    expected_value,
    is_not_gaussian,
    log_expectation,
    points_of,
)
from moment_calculus.likelihoods.links import log
from moment_calculus.likelihoods.location_scale import (
    check_positive,
    difference,
    product_or_zero,
    scaled_expectation,
)
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quadrature import log_mean_exp
from moment_calculus.numerics.special import cast_clipped, namespace
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.sums import aligned
from moment_calculus.operations.elementwise.unary import is_value, scale_shift, shape_of
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, elementwise_covariance
from moment_calculus.values.spread import broadcast_shape, overlap

LOG_2PI = math.log(2 * math.pi)


def normal(value: Any, loc: Any, scale: Any) -> Array:
    """Return E[log N(value; loc, scale)], any of the three random (Wu et al. 2019, eq. 8).

    Closed form for a certain scale, and for scale = k·exp(rh) if h is Gaussian, jointly
    with the location. Quadrature over the Gaussian behind another positive scale, and
    over a location that is a function of a Gaussian and depends on the scale.
    """
    residual = difference(value, loc)
    if not is_value(scale):
        return _normal_density(*_moments(residual), scale)
    check_positive(scale)
    found = elementary.exponential_parts(scale)
    jointly_gaussian = not is_not_gaussian(residual) or not overlap(residual, scale)
    if found is not None and jointly_gaussian and not is_not_gaussian(found[0]):
        base, rate, factor = found
        return _exponential_scale(residual, scale_shift(base, rate).gaussian(), factor)
    squared = scaled_expectation(
        lambda mean, variance: mean * mean + variance, lambda r: r * r, value, loc, scale
    )
    return -0.5 * (LOG_2PI + squared) - expected_value(log(scale))


def log_normal(value: Any, loc: Any, scale: Any) -> Array:
    """Return E[log LogNormal(value; loc, scale)], by :func:`normal` of the logarithm."""
    logs = log(value)
    return normal(logs, loc, scale) - expected_value(logs)


def half_normal(value: Any, scale: Any) -> Array:
    """Return E[log HalfNormal(value; scale)]: twice :func:`normal` at zero."""
    return math.log(2) + normal(value, 0.0, scale)


def _normal_density(residual: Array, variance: Any, scale: Any) -> Array:
    squared = (residual * residual + variance) / (scale * scale)
    return -0.5 * (LOG_2PI + squared) - log(scale)


def _moments(residual: Any) -> tuple[Array, Any]:
    if not is_value(residual):
        return residual, 0.0
    residual = residual.gaussian()
    return residual.mean, residual.variance


def _exponential_scale(residual: Any, driver: Gaussian, factor: Any) -> Array:
    """Return E[log N] for scale = factor · exp(h), by completing the square."""
    mean, variance, covariance = _moments_with_driver(residual, driver)
    shifted = mean - 2 * covariance  # the mean of r under the weight exp(−2h)
    weight = infinite_where_capped(capped_exp(2 * (driver.variance - driver.mean))) / factor**2
    squared = product_or_zero(shifted * shifted + variance, weight)
    return -0.5 * (LOG_2PI + squared) - driver.mean - log(factor)


def _moments_with_driver(residual: Any, driver: Gaussian) -> tuple[Array, Any, Any]:
    """Return mean and variance of the residual, its covariance with the driver."""
    if not is_value(residual):
        return residual, 0.0, 0.0
    residual = residual.gaussian()
    if not overlap(residual, driver):
        return residual.mean, residual.variance, 0.0
    left, right, _ = aligned(residual, driver)
    covariance = elementwise_covariance(left, right)
    if covariance is None:
        raise UnsupportedMoments(
            "the location and the scale of a Normal depend on the same latent site(s) and their "
            "covariance is not known",
            sites=residual.sites & driver.sites,
            remedy="slice both from one output, out[..., 0] and out[..., 1], or use heads with "
            "weights of their own on the same hidden layer" + OR_DRAW,
        )
    return residual.mean, residual.variance, covariance


def normal_predictive(loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    """Return predictive mean, epistemic variance Var[f] and aleatoric variance E[scale²].

    Source: Wu et al. 2019, eq. 9.
    """
    mean, variance = _moments(loc)
    zero = 0.0 * mean
    if not is_value(scale):
        return mean, variance + zero, scale * scale + zero
    moments = scale.gaussian()
    return mean, variance + zero, moments.variance + moments.mean**2 + zero


def normal_log_predictive(value: Array, loc: Any, scale: Any, *, power: Any = 1.0) -> Array:
    """Return (1/a) log E_q[N(value; f, scale)ᵃ]: the log predictive density for ``power`` a = 1.

    Exact for a certain scale s: (log N(y; m, v + s²/a) + ½ (1 − a) log 2πs² − ½ log a) /
    a, written without cancellation for small a. Quadrature over a random scale, and over
    a location that is a function of a Gaussian.
    """
    if is_not_gaussian(loc):
        check_positive(scale)
        return log_expectation(
            lambda y, m, s: _normal_density(y - m, 0.0, s), value, loc, scale, power=power
        )
    residual = difference(value, loc)
    if not is_value(scale):
        mean, variance = _moments(residual)
        return _log_power_mean(mean, variance, scale, power)
    return _log_integrate_scale(residual, scale, power)


def _log_integrate_scale(residual: Any, scale: Any, power: Any) -> Array:
    check_positive(scale)
    shape = broadcast_shape(tuple(residual.shape), scale.shape, shape_of(power))
    scale = broadcast(scale, shape)
    driver = scale.base
    points, weights = points_of(driver, scale.function.knots)
    mean, variance = residual, 0.0
    if is_value(residual):
        mean, variance = conditional(broadcast(residual, shape), driver, points)
    terms = power * _log_power_mean(mean, variance, scale(points), power)
    return cast_clipped(log_mean_exp(terms, weights) / power, driver.mean)


def _log_power_mean(residual: Array, variance: Any, scale: Any, power: Any) -> Array:
    """Return −½ (log 2πs² + log(1 + a v/s²)/a + r²/(s² + a v)), a the power."""
    xp = namespace(residual)
    zero = xp.zeros_like(residual)
    squared = xp.clip(scale * scale + zero, min=float(xp.finfo(residual.dtype).tiny))
    added = power * variance + zero
    total = squared + added
    large = added > squared  # there added / squared may overflow
    ratio = xp.where(large, xp.ones_like(added), added) / xp.where(large, total, squared)
    growth = xp.where(large, xp.log(total) - xp.log(squared), xp.log1p(ratio))
    spread = xp.log(squared) + growth / power
    return -0.5 * (LOG_2PI + spread + residual * residual / total)
