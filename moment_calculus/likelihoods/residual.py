"""What a location and a scale have in common: the residual in units of the scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.likelihoods.drivers import NESTED, conditional, is_function, points_of
from moment_calculus.likelihoods.expectations import expectation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.choices import nowhere
from moment_calculus.numerics.special import (
    double,
    in_precision_of,
    infinite_beyond,
    namespace,
    stop_gradient,
)
from moment_calculus.operations.elementwise.arithmetic import is_value, subtract
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Gaussian
from moment_calculus.values.layout import broadcast_shape

NEGLIGIBLE = 1e-9  # part of an expectation that may come from scales close to zero


def difference(value: Any, loc: Any) -> Any:
    """The residual value − loc, a value if one of them is, component by component.

    Args:
        value: array or value.
        loc: likewise.
    """
    random = is_value(value) or is_value(loc)
    return subtract(value, loc, elementwise=True) if random else value - loc


def zero_with(factor: Any, weight: Any) -> Any:
    """The product of two numbers, zero where the first is even if the second is infinite.

    Args:
        factor: array or number, such as an observation.
        weight: array or number, such as the mean of a rate beyond every number of the dtype.
    """
    product = factor * weight
    if not hasattr(factor, "shape"):
        return product
    xp = namespace(factor)
    if hasattr(weight, "shape") and nowhere(~xp.isfinite(weight)):
        return product
    nothing = xp.zeros_like(product)
    return xp.where(factor + nothing == 0, nothing, product)


def check_positive(scale: Any) -> None:
    """Refuse a scale that is a Gaussian, hence not positive.

    Args:
        scale: array, number or value.

    Raises:
        UnsupportedMoments: if it is a Gaussian, or may be negative.
    """
    if isinstance(scale, Gaussian):
        raise UnsupportedMoments(
            "the scale is a Gaussian value, or matched by one, which is not positive",
            sites=scale.sites,
            remedy="make the scale a positive function of one Gaussian, e.g. exp(h)" + OR_DRAW,
        )


def scaled_expectation(
    expected: Callable[[Array, Array], Array],
    plain: Callable[[Array], Array],
    value: Any,
    loc: Any,
    scale: Any,
) -> Array:
    """E[g((value − loc)/scale)] of a residual in units of its scale.

    Args:
        expected: E[g(x)] from mean and variance of Gaussian x.
        plain: g itself.
        value: observation, array or value.
        loc: location, array or value.
        scale: array, number or positive function of a Gaussian.

    Returns:
        Array of the broadcast shape.

    Raises:
        UnsupportedMoments: if the scale may be negative, or depends on the residual in an unknown
            way.
    """
    check_positive(scale)
    if is_function(value) or is_function(loc):
        return expectation(lambda y, m, s: plain((y - m) / s), value, loc, scale)
    residual = difference(value, loc)
    if is_value(scale):
        return _over_scale(expected, residual, scale)
    if not is_value(residual):
        return plain(residual / scale)
    return expected(residual.mean / scale, residual.variance / (scale * scale))


def _over_scale(expected: Callable, residual: Any, scale: Any) -> Array:
    """Quadrature over the Gaussian behind the scale, of what is known given the scale."""
    shape = broadcast_shape(tuple(residual.shape), scale.shape)
    scale = broadcast(scale, shape)
    driver = scale.base
    points, weights = points_of(driver, scale.function.knots, NESTED)
    # where a weight underflows nothing counts, nor should what overflows there
    points = namespace(points).where(weights > 0, points, double(driver.mean))
    if is_value(residual):
        mean, variance = conditional(broadcast(residual, shape), driver, points)
    else:
        mean, variance = residual + 0 * points, 0 * points
    total, rest = _summed(expected, weights, (mean, variance), scale(points))
    xp, result = namespace(points), infinite_beyond(in_precision_of(total, driver.mean))
    return xp.where(rest > NEGLIGIBLE * xp.abs(total), xp.zeros_like(result) + math.inf, result)


def _summed(
    expected: Callable, weights: Array, moments: tuple[Array, Array], unit: Array
) -> tuple[Array, Array]:
    """E g(x/s), with s held where 1/s² leaves the range of the dtype; and what comes from there."""
    xp, (mean, variance) = namespace(unit), moments
    floor = 1e3 / math.sqrt(float(xp.finfo(unit.dtype).max))
    held = ~(unit > floor)
    inverse = 1 / xp.where(held, floor + xp.zeros_like(unit), unit)
    terms = weights * expected(mean * inverse, variance * inverse * inverse)
    rest = xp.where(held, xp.abs(stop_gradient(terms)), xp.zeros_like(terms))
    return xp.sum(terms, axis=0), xp.sum(rest, axis=0)
