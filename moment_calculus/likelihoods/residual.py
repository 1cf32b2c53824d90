"""The residual of an observation from its location, in units of its scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.likelihoods.drivers import NESTED, conditional, is_not_gaussian, points_of
from moment_calculus.likelihoods.expectations import expectation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.choices import known_all_false
from moment_calculus.numerics.special import (
    cast_clipped,
    namespace,
    restore_infinities,
    stop_gradient,
    to_float64,
)
from moment_calculus.operations.elementwise.arithmetic import is_value, subtract
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian
from moment_calculus.values.spread import broadcast_shape

SMALL_SCALE_SHARE = 1e-9  # share of an expectation that may come from scales close to zero


def difference(value: Any, loc: Any) -> Any:
    """Return value − loc, component by component: a value if one of them is, else an array."""
    random = is_value(value) or is_value(loc)
    return subtract(value, loc, elementwise=True) if random else value - loc


def product_or_zero(factor: Any, weight: Any) -> Any:
    """Return factor · weight, which is zero where ``factor`` is, even if ``weight`` is infinite."""
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
    if isinstance(scale, Gaussian):
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
    if is_not_gaussian(value) or is_not_gaussian(loc):
        return expectation(lambda y, m, s: plain((y - m) / s), value, loc, scale)
    residual = difference(value, loc)
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


def _summed(
    expected: Callable, weights: Array, moments: tuple[Array, Array], unit: Array
) -> tuple[Array, Array]:
    """Return E g(x/s), with s bounded from below, and the part of it that has the bound."""
    xp, (mean, variance) = namespace(unit), moments
    floor = 1e3 / math.sqrt(float(xp.finfo(unit.dtype).max))  # 1/s² must stay finite
    held = ~(unit > floor)
    inverse = 1 / xp.where(held, floor + xp.zeros_like(unit), unit)
    terms = weights * expected(mean * inverse, variance * inverse * inverse)
    rest = xp.where(held, xp.abs(stop_gradient(terms)), xp.zeros_like(terms))
    return xp.sum(terms, axis=0), xp.sum(rest, axis=0)
