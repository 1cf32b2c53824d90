"""What a location and a scale have in common: the residual in units of the scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.likelihoods.drivers import NESTED, conditional
from moment_calculus.likelihoods.expectations import expectation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quadrature import nodes
from moment_calculus.numerics.special import double, in_precision_of, namespace
from moment_calculus.operations.elementwise.arithmetic import is_value, subtract
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian
from moment_calculus.values.layout import broadcast_shape


def difference(value: Any, loc: Any) -> Any:
    """The residual value − loc, a value if one of them is, component by component.

    Args:
        value: array or value.
        loc: likewise.
    """
    random = is_value(value) or is_value(loc)
    return subtract(value, loc, elementwise=True) if random else value - loc


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
    if isinstance(value, Deferred) or isinstance(loc, Deferred):
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
    points, weights = nodes(
        double(driver.mean), double(driver.variance), scale.function.knots, NESTED
    )
    if is_value(residual):
        mean, variance = conditional(broadcast(residual, shape), driver, points)
    else:
        mean, variance = residual + 0 * points, 0 * points
    unit = scale(points)
    xp = namespace(points)
    given = expected(mean / unit, variance / (unit * unit))
    return in_precision_of(xp.sum(weights * given, axis=0), driver.mean)
