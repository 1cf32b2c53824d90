"""Densities of a residual in units of a scale: Normal (of vectors too), Laplace, Student-t."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.base import Rescaled
from moment_calculus.functions.combinators import Scaled
from moment_calculus.functions.families.elementary import capped_exp, infinite_where_capped
from moment_calculus.functions.families.named import log_1p_exp
from moment_calculus.functions.series.log_square import expected_log1p_square
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import (
    averaged_over,
    expectation,
    expected_value,
    log_expectation,
    smooth_expectation,
    warn_if_infinite,
)
from moment_calculus.likelihoods.links import log
from moment_calculus.likelihoods.tails import tail_of
from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    device,
    gammaln,
    namespace,
    restore_infinities,
    stop_gradient,
    to_float64,
)
from moment_calculus.numerics.execution import known_all_false, to_host
from moment_calculus.numerics.quadrature import even_rule, log_mean_exp
from moment_calculus.numerics.tilted_normal import LINKS, Link, log_tilted_normal
from moment_calculus.operations.elementwise import elementary
from moment_calculus.operations.elementwise.drivers import (
    NESTED,
    conditional,
    is_not_gaussian,
    points_of,
)
from moment_calculus.operations.elementwise.factors import positive_joint
from moment_calculus.operations.elementwise.sums import aligned, subtract
from moment_calculus.operations.elementwise.unary import apply, is_value, scale_shift, shape_of
from moment_calculus.operations.shapes.reshaping import broadcast, narrow
from moment_calculus.values import Deferred, Gaussian, elementwise_covariance
from moment_calculus.values.spread import broadcast_shape, overlap
from moment_calculus.values.weighted import under_weight

SMALL_SCALE_SHARE = 1e-9  # share of an expectation that may come from scales close to zero


def difference(value: Any, loc: Any) -> Any:
    """Return value − loc by component: a value if one of them is, else an array."""
    random = is_value(value) or is_value(loc)
    return subtract(value, loc, elementwise=True) if random else value - loc


def product_or_zero(factor: Any, weight: Any) -> Any:
    """Return factor · weight, zero where ``factor`` is, even for infinite weights."""
    product = factor * weight
    if not hasattr(factor, "shape"):
        return product
    xp = namespace(factor)
    if hasattr(weight, "shape") and known_all_false(~xp.isfinite(weight)):
        return product
    nothing = xp.zeros_like(product)
    return xp.where(factor + nothing == 0, nothing, product)


def check_positive(scale: Any) -> None:
    """Raise UnsupportedMoments if a scale is a Gaussian, hence not positive."""
    if isinstance(scale, Gaussian) and positive_joint(scale) is None:
        raise UnsupportedMoments(
            "the scale is a Gaussian value, or matched by one, which is not positive",
            sites=scale.sites,
            remedy="make the scale a positive function of one Gaussian, e.g. exp(h)" + OR_DRAW,
        )


def scaled_expectation(
    expected: Callable[[Array, Array], Array],  # E[g(x)] from mean and variance of Gaussian x
    plain: Callable[[Array], Array],  # g itself
    value: Any,
    loc: Any,
    scale: Any,
) -> Array:
    """Return E[g((value − loc)/scale)] of a residual in units of its scale."""
    check_positive(scale)
    residual = difference(value, loc)
    if isinstance(scale, Gaussian) and not (is_value(residual) and overlap(residual, scale)):
        return _integrate_joint_scale(expected, residual, scale)
    if is_not_gaussian(value) or is_not_gaussian(loc) or isinstance(scale, Gaussian):
        return expectation(lambda y, m, s: plain((y - m) / s), value, loc, scale)
    if is_value(scale):
        return _integrate_scale(expected, residual, scale)
    if not is_value(residual):
        return plain(residual / scale)
    return expected(residual.mean / scale, residual.variance / (scale * scale))


def _integrate_scale(expected: Callable, residual: Any, scale: Any) -> Array:
    """Integrate an expectation given the scale over the Gaussian behind the scale."""
    shape = broadcast_shape(tuple(residual.shape), scale.shape)
    scale = broadcast(scale, shape)
    driver = scale.base
    points, weights = points_of(driver, scale.function.knots, NESTED)
    # Points of zero weight move to the mean, so that nothing overflows there.
    points = namespace(points).where(weights > 0, points, to_float64(driver.mean))
    if is_value(residual):
        mean, variance = conditional(broadcast(residual, shape), driver, points)
    else:
        mean, variance = residual + 0 * points, 0 * points
    total, rest = _summed(expected, weights, (mean, variance), scale(points))
    xp, result = namespace(points), restore_infinities(cast_clipped(total, driver.mean))
    return xp.where(
        rest > SMALL_SCALE_SHARE * xp.abs(total), xp.zeros_like(result) + math.inf, result
    )


def _integrate_joint_scale(expected: Callable, residual: Any, scale: Gaussian) -> Array:
    """Integrate an expectation given the scale over the Gaussians behind it."""
    mean, variance = _moments(residual)
    zero = to_float64(to_host(mean)) * 0
    return smooth_expectation(
        lambda s, m, v: expected(m / s, v / (s * s)), scale, mean + zero, variance + zero
    )


def _summed(
    expected: Callable, weights: Array, moments: tuple[Array, Array], unit: Array
) -> tuple[Array, Array]:
    """Return E g(x/s), s bounded from below, and its part at the bound."""
    xp, (mean, variance) = namespace(unit), moments
    floor = 1e3 / math.sqrt(float(xp.finfo(unit.dtype).max))  # 1/s² must stay finite
    held = ~(unit > floor)
    inverse = 1 / xp.where(held, floor + xp.zeros_like(unit), unit)
    terms = weights * expected(mean * inverse, variance * inverse * inverse)
    rest = xp.where(held, xp.abs(stop_gradient(terms)), xp.zeros_like(terms))
    return xp.sum(terms, axis=0), xp.sum(rest, axis=0)


def laplace(value: Any, loc: Any, scale: Any) -> Array:
    """Return E[log Laplace(value; loc, scale)], any of the three random."""
    # Measured relative error for a random scale: 2e-8 at standard deviations of its
    # Gaussian up to 5; a certain scale has a closed form.
    absolute = activation("abs")
    distance = scaled_expectation(
        lambda mean, variance: absolute.moments(mean, variance)[0], absolute, value, loc, scale
    )
    return -distance - math.log(2) - expected_value(log(scale))


def asymmetric_laplace(value: Any, loc: Any, scale: Any, asymmetry: Any) -> Array:
    """Return E[log AsymmetricLaplace(value; loc, scale, asymmetry)]; not of a random asymmetry."""
    if is_value(asymmetry):
        return NotImplemented
    return _of_slopes(value, loc, scale, asymmetry, 1 / asymmetry)


def asymmetric_laplace_quantile(value: Any, loc: Any, scale: Any, quantile: Any) -> Array:
    """Return that of the distribution whose quantile at a probability, not random, is ``loc``."""
    if is_value(quantile):
        return NotImplemented
    return _of_slopes(value, loc, scale, quantile, 1 - quantile)


def _of_slopes(value: Any, loc: Any, scale: Any, above: Array, below: Array) -> Array:
    """Return E[log p], whose slopes in units of the scale differ on both sides of ``loc``."""
    absolute, lean, half = activation("abs"), (above - below) / 2, (above + below) / 2
    distance = scaled_expectation(
        lambda mean, variance: half * absolute.moments(mean, variance)[0] + lean * mean,
        lambda residual: half * absolute(residual) + lean * residual,
        value,
        loc,
        scale,
    )
    return -distance - log(1 / above + 1 / below) - expected_value(log(scale))


def student_t(value: Any, df: Any, loc: Any, scale: Any) -> Array:
    """Return E[log StudentT(value; df, loc, scale)], any of them random.

    Source: log(1 + z) = ∫ (1 − e^{−tz}) e^{−t} dt/t, with E[e^{−tx²}] of Gaussian x.
    Measured relative error: 4e-10 for |μ/σ| ≤ 8, σ from 1e-3 to 1e2; 2e-7 for a random
    scale whose Gaussian has a standard deviation up to 5.
    """
    if is_value(df):
        log(df)  # raises UnsupportedMoments if they may not be positive
        if any(is_value(part) and overlap(df, part) for part in (value, loc, scale)):
            return expectation(_student_t_density, loc, scale, df, value)
        rule = lambda df, *others: student_t(others[0], df, *others[1:])  # noqa: E731
        with even_rule(24, 6.5):  # all is smooth over one unit of the logarithm of a scale
            return averaged_over(df, rule, value, loc, scale)
    like = next(
        array for array in map(_example_array, (value, loc, scale)) if hasattr(array, "shape")
    )
    xp = namespace(like)
    df = constants(df, like) if isinstance(df, int | float) else df
    root = df**0.5

    def expected(mean: Array, variance: Array) -> Array:
        return expected_log1p_square(mean / root, variance / df)

    def plain(x: Array) -> Array:
        return xp.log1p(x * x / df)

    tail = scaled_expectation(expected, plain, value, loc, scale)
    return _student_t_constant(df, xp) - expected_value(log(scale)) - (df + 1) / 2 * tail


def _student_t_constant(df: Array, xp: Any) -> Array:
    """Return log Γ((ν + 1)/2) − log Γ(ν/2) − ½ log νπ."""
    return gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * xp.log(df * math.pi)


def cauchy(value: Any, loc: Any, scale: Any) -> Array:
    """Return E[log Cauchy(value; loc, scale)]: :func:`student_t` with one degree of freedom."""
    return student_t(value, 1.0, loc, scale)


def _student_t_density(loc: Any, scale: Any, df: Any, value: Any) -> Array:
    return student_t_log_density(value, loc, scale, df)


def student_t_log_density(value: Array, loc: Any, scale: Any, df: Any) -> Array:
    """Return log StudentT(value; df, loc, scale) of certain parameters."""
    residual = (value - loc) / scale
    df = df if hasattr(df, "shape") else constants(df, residual)
    xp = namespace(residual)
    tail = (df + 1) / 2 * xp.log1p(residual * residual / df)
    return _student_t_constant(df, xp) - log(scale) - tail


def _example_array(operand: Any) -> Any:
    """Return the array behind an operand: of a value, the mean of its Gaussian."""
    if isinstance(operand, Gaussian):
        return operand.mean
    return operand.base.mean if isinstance(operand, Deferred) else operand


def half_cauchy(value: Any, scale: Any) -> Array:
    """Return E[log HalfCauchy(value; scale)], stable for values of any size.

    The log density is log 2 − log π − log s − log(1 + e^{2 log y − 2 log s}).
    """
    log_value, log_scale = log(value), log(scale)
    if is_value(log_scale):
        ratio = expectation(lambda y, s: log_1p_exp(2 * (y - s)), log_value, log_scale)
    elif is_value(log_value):
        steps = scale_shift(log_value, 2.0, -2 * log_scale)
        ratio = expected_value(apply(activation("softplus"), steps))
    else:
        ratio = log_1p_exp(2 * (log_value - log_scale))
    return math.log(2 / math.pi) - expected_value(log_scale) - ratio


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
    jointly_gaussian = jointly_gaussian and isinstance(scale, Deferred)
    if found is not None and jointly_gaussian and not is_not_gaussian(found[0]):
        base, rate, factor = found
        warn_if_infinite(base)
        return _exponential_scale(residual, base, rate, factor)
    parts = _link_of(scale) if jointly_gaussian else None
    if parts is not None and not is_not_gaussian(parts[0]):
        shape = broadcast_shape(shape_of(residual), scale.shape)
        return _integrate_link(residual, *parts, 0.0, shape)
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


def _exponential_scale(residual: Any, base: Gaussian, rate: float, factor: Any) -> Array:
    """Return E[log N] for scale = factor · exp(h), h = rate · base, by completing the square."""
    driver = scale_shift(base, rate).gaussian()
    shifted, variance, log_mass = _moments_under_weight(residual, base, rate)
    weight = infinite_where_capped(capped_exp(2 * (driver.variance - driver.mean) + log_mass))
    squared = product_or_zero(shifted * shifted + variance, weight / factor**2)
    return -0.5 * (LOG_2PI + squared) - driver.mean - log(factor)


def _moments_under_weight(
    residual: Any, base: Gaussian, rate: float
) -> tuple[Array, Any, Array | float]:
    """Return mean and variance of the residual under e^{−2h}, and what tails add to log E e^{−2h}.

    Exact for what is computed from Gaussians by rules that are exact, if h is one number.
    """
    weighted = None
    if is_value(residual):
        weighted = under_weight(residual.gaussian(), narrow(base), -2 * rate)
    if weighted is not None:
        return weighted.mean, weighted.variance, 0.0
    driver = scale_shift(base, rate).gaussian()
    mean, variance, covariance = _moments_with_driver(residual, driver)
    tail = tail_of(driver, residual, rate=-2.0)
    return mean - 2 * covariance + tail.mean, variance + tail.variance, tail.log_mass


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
    dependent = is_value(loc) and isinstance(scale, Gaussian) and overlap(loc, scale)
    if is_not_gaussian(loc) or dependent:
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
    if isinstance(scale, Gaussian):
        with even_rule():
            return log_expectation(
                lambda s, m, v, a: _log_power_mean(m, v, s, a), scale, *_moments(residual), power
            )
    shape = broadcast_shape(tuple(residual.shape), scale.shape, shape_of(power))
    parts = _link_of(scale)
    if parts is not None and not (is_not_gaussian(residual) or is_not_gaussian(parts[0])):
        return _integrate_link(residual, *parts, power, shape)
    scale = broadcast(scale, shape)
    driver = scale.base
    points, weights = points_of(driver, scale.function.knots)
    mean, variance = residual, 0.0
    if is_value(residual):
        mean, variance = conditional(broadcast(residual, shape), driver, points)
    terms = power * _log_power_mean(mean, variance, scale(points), power)
    return cast_clipped(log_mean_exp(terms, weights) / power, driver.mean)


def _link_of(scale: Deferred) -> tuple[Gaussian, float, Any, Link] | None:
    """Return x, r, c > 0 and the link g with scale = c g(rx); None for other scales."""
    if (found := elementary.exponential_parts(scale)) is not None:
        return *found, ("exp", 0.0)
    function, factor, shift, rate = scale.function, 1.0, 0.0, 1.0
    while isinstance(function, Scaled):
        shift, factor = shift + factor * function.shift, factor * function.scale
        function = function.inner
    if isinstance(function, Rescaled):
        shift, factor = shift + factor * function.shift, factor * function.outer
        rate, function = function.inner, function.activation
    numbers = isinstance(factor, float) and isinstance(shift, float)
    if function.name not in LINKS or not numbers or factor <= 0 or shift < 0:
        return None
    return scale.base, rate, factor, (function.name, shift / factor)


def _integrate_link(
    residual: Any,
    base: Gaussian,
    rate: float,
    factor: Any,
    link: Link,
    power: Any,
    shape: tuple[int, ...],
) -> Array:
    """Return (1/a) log E Nᵃ, or E log N for a = 0, for the scale factor · g(rate · base)."""
    driver = scale_shift(base, rate).gaussian()
    mean, variance, covariance = _moments_with_driver(residual, driver)
    zero = namespace(driver.mean).zeros(shape, dtype=driver.mean.dtype, device=device(driver.mean))
    moments = mean, variance, covariance, driver.mean, driver.variance
    mean, variance, covariance, *others = (to_float64(to_host(part + zero)) for part in moments)
    factor = to_host(factor)
    scaled = mean / factor, variance / factor**2, covariance / factor, *others
    return cast_clipped(log_tilted_normal(scaled, power, link) - log(factor), driver.mean)


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
