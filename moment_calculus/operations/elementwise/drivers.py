"""Gaussians that drive the random parameters of a likelihood, and points of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.combinators import Bounds, Knots, merge_knots
from moment_calculus.numerics.arrays import (
    Array,
    constants,
    namespace,
    positive_part,
    safe_scale,
    to_float64,
)
from moment_calculus.numerics.execution import to_host
from moment_calculus.numerics.quadrature import (
    POINTS,
    even_nodes,
    gauss_hermite,
    nodes,
    rule_on_trial,
)
from moment_calculus.operations.elementwise.factors import Joint, joint_parameter, positive_factors
from moment_calculus.operations.elementwise.sums import aligned
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.shapes.moves import is_same
from moment_calculus.operations.shapes.reshaping import broadcast, is_broadcast
from moment_calculus.values import Deferred, Gaussian, elementwise_covariance
from moment_calculus.values.ancestry import branches_of, shifted_from
from moment_calculus.values.deferred import as_function
from moment_calculus.values.spread import broadcast_shape, overlap

NESTED = 6  # points of a panel if two rules are nested
MOST = 3  # drivers that are integrated
THIRD = 12  # points of a third, independent driver
HEADS_REMEDY = (
    "make every random parameter a function of one Gaussian, or of two heads sliced from one "
    "output (out[..., 0] and out[..., 1]), or draw the sites by naming them in sample_sites="
)


@dataclass(frozen=True)
class Grid:
    """Quadrature points of the drivers with their weights; the nodes are the leading axes."""

    weights: Array  # [nodes, ..., *shape]; they sum to one over the leading axes
    points: tuple[Array, ...]  # of every driver, broadcastable to the weights
    axes: tuple[int, ...]  # the leading axes


@dataclass(frozen=True)
class Drivers:
    """Arguments of a function, as functions of at most three drivers.

    The first two are jointly Gaussian; the third, such as degrees of freedom beside a
    location and a scale, is independent of them.
    """

    gaussians: tuple[Gaussian, ...]  # the drivers, of one shape
    arguments: tuple[Callable[[Sequence[Array]], Any], ...]  # from points of the drivers
    knots: tuple[Knots, ...]  # for each driver, where the arguments bend

    @property
    def are_integrated(self) -> bool:
        """Whether there are at most two, or a third one that is independent of these."""
        first, third = self.gaussians[:2], self.gaussians[2:]
        shared = any(overlap(driver, other) for driver in third for other in first)
        return len(third) <= 1 and not shared

    def at(self, points: Sequence[Array]) -> list[Any]:
        """Return all arguments at points of the drivers."""
        return [argument(points) for argument in self.arguments]

    def grid(self, knots: Knots = ()) -> Grid:
        """Return nodes over the drivers in double precision, also around ``knots``."""
        first = self.gaussians[0]
        own = merge_knots(self.knots[0], knots)
        if len(self.gaussians) == 1:
            points, weights = points_of(first, own)
            return Grid(weights, (points,), (0,))
        second = self.gaussians[1]  # the outer rule; the inner one is conditional on its points
        outer, outer_weights = points_of(second, self.knots[1], NESTED)
        mean, variance = conditional(first, second, outer)
        others: tuple[Array, ...] = (outer,)
        if len(self.gaussians) == 3:
            third, weights = independent_points(self.gaussians[2], self.gaussians[:2])
            others = outer[:, None], third[None]
            outer_weights = outer_weights[:, None] * weights[None]
            mean, variance = mean[:, None] + 0 * third, variance[:, None] + 0 * third
        points, weights = (
            even_nodes(mean, variance) if rule_on_trial() else nodes(mean, variance, own, NESTED)
        )
        return Grid(weights * outer_weights, (points, *others), (0, 1, 2)[: len(self.gaussians)])


def is_not_gaussian(operand: Any) -> bool:
    """Tell if a value is a function of a Gaussian, or switched by a mask of dropout."""
    if isinstance(operand, Gaussian):
        return branches_of(operand) is not None
    return isinstance(operand, Deferred)


def _numbers(array: Array) -> Array:
    """Return the numbers in double precision where there is one, of NumPy where it computes."""
    return to_float64(to_host(array))


def points_of(driver: Gaussian, knots: Knots, count: int = POINTS) -> tuple[Array, Array]:
    """Return points and weights [nodes, ...] of a driver, for both mask outcomes."""
    branches = branches_of(driver)
    if branches is None:
        moments = _numbers(driver.mean), _numbers(driver.variance)
        return even_nodes(*moments) if rule_on_trial() else nodes(*moments, knots, count)
    xp, chance = namespace(to_host(driver.mean)), _numbers(branches.mask.mean)
    on, off = (_points_of_branch(part, knots, count) for part in (branches.on, branches.off))
    weights = xp.concat([chance * on[1], (1 - chance) * off[1]], axis=0)
    return xp.concat([on[0], off[0]], axis=0), weights


def independent_points(driver: Gaussian, others: Sequence[Any]) -> tuple[Array, Array]:
    """Return a few points and weights [nodes, ...] of a driver that shares nothing with others."""
    if shared := frozenset().union(*(overlap(driver, other) for other in others)):
        raise UnsupportedMoments(
            "three parameters of a likelihood depend on the same latent site(s): a third one is "
            "integrated where it is independent of the others",
            sites=shared,
            remedy=HEADS_REMEDY,
        )
    nodes, weights = gauss_hermite(THIRD)
    mean, deviation = _numbers(driver.mean), safe_scale(_numbers(driver.variance))
    column = lambda part: constants(part.reshape((-1,) + (1,) * len(driver.shape)), mean)  # noqa: E731
    return mean + deviation * column(nodes), column(weights) + 0 * mean


def _points_of_branch(branch: Any, knots: Knots, count: int) -> tuple[Array, Array]:
    if not is_value(branch):
        points = _numbers(branch)[None]
        return points, namespace(points).ones_like(points)
    source = as_function(branch)
    if isinstance(source, Gaussian):
        return points_of(source, knots, count)
    points, weights = points_of(source.base, merge_knots(source.function.knots, (0.0,)), count)
    return source.function(points), weights


def conditional(first: Gaussian, second: Gaussian, points: Array) -> tuple[Array, Array]:
    """Return mean and variance [nodes, *shape] of one value given the other."""
    covariance = elementwise_covariance(*aligned(first, second)[:2])
    if branches_of(first) is not None or (overlap(first, second) and is_not_gaussian(second)):
        raise UnsupportedMoments(
            "a parameter of a likelihood comes straight from dropout and is integrated together "
            "with another one that is random",
            sites=first.sites | second.sites,
            remedy="put a linear map between dropout and the parameters, or " + HEADS_REMEDY,
        )
    if covariance is None:
        raise UnsupportedMoments(
            "two parameters of a likelihood depend on the same latent site(s) and their "
            "covariance is not known",
            sites=first.sites & second.sites,
            remedy=HEADS_REMEDY,
        )
    deviation = safe_scale(_numbers(second.variance))
    slope = to_host(covariance) / deviation
    mean = to_host(first.mean) + slope / deviation * (points - to_host(second.mean))
    variance = positive_part(_numbers(first.variance) - slope * slope)
    return mean, variance + 0 * points


def collect_drivers(*arguments: Any) -> Drivers:
    """Find the Gaussians that drive the arguments elementwise, however many there are."""
    shape = broadcast_shape(*(shape_of(argument) for argument in arguments), ())
    gaussians: list[Gaussian] = []
    knots: list[Knots] = []
    functions = tuple(
        _as_function_of_drivers(argument, shape, gaussians, knots) for argument in arguments
    )
    return Drivers(tuple(gaussians), functions, tuple(knots))


def check_count(drivers: Drivers) -> Drivers:
    """Return drivers, of which there are at most three; raise UnsupportedMoments for more."""
    if (count := len(drivers.gaussians)) > MOST:
        raise UnsupportedMoments(
            f"the parameters of a likelihood are functions of {count} different Gaussians; at "
            "most three are integrated",
            sites=frozenset().union(*(gaussian.sites for gaussian in drivers.gaussians)),
            remedy=HEADS_REMEDY,
        )
    return drivers


def _as_function_of_drivers(
    argument: Any, shape: tuple[int, ...], drivers: list[Gaussian], knots: list[Knots]
) -> Callable[[Sequence[Array]], Any]:
    """Return an argument as a function of drivers' points; append a new driver."""
    if isinstance(argument, Joint):
        return _of_parts(argument.combine, argument.parts, shape, drivers, knots)
    if not is_value(argument):
        if hasattr(argument, "gaussian"):
            argument.gaussian()  # raises UnsupportedMoments
        certain = to_host(argument)
        return lambda points: certain
    if (factors := positive_factors(argument)) is not None:
        return _of_parts(lambda *values: math.prod(values), factors, shape, drivers, knots)
    if (joint := joint_parameter(argument)) is not None:
        return _of_parts(joint.combine, joint.parts, shape, drivers, knots)
    wide = broadcast(argument, shape)
    base = wide.base if isinstance(wide, Deferred) else wide
    bends = wide.function.knots if isinstance(wide, Deferred) else ()
    for index, driver in enumerate(drivers):
        if (relation := affine_relation(driver, base)) is not None:
            scale, shift = relation[0], to_host(relation[1])
            knots[index] = merge_knots(knots[index], _knots_of_image(bends, scale, shift))
            return lambda points: value_at(wide, scale * points[index] + shift)
    drivers.append(base)
    knots.append(bends)
    last = len(drivers) - 1
    return lambda points: value_at(wide, points[last])


def _of_parts(
    combine: Callable[..., Any],
    parts: Sequence[Any],
    shape: tuple[int, ...],
    drivers: list[Gaussian],
    knots: list[Knots],
) -> Callable[[Sequence[Array]], Any]:
    functions = [_as_function_of_drivers(part, shape, drivers, knots) for part in parts]
    return lambda points: combine(*(function(points) for function in functions))


def affine_relation(driver: Gaussian, base: Gaussian) -> tuple[float, Any] | None:
    """Return a and b if the base is a · driver + b; None if that is not known."""
    if is_same(driver, base):
        return 1.0, 0.0
    if shifted_from(driver) is shifted_from(base):
        return 1.0, base.mean - driver.mean
    (root, scale, shift), (other, factor, offset) = map(_affine_root, (driver, base))
    if not is_same(root, other) or not scale:
        return None
    return factor / scale, offset - factor / scale * shift


def _affine_root(value: Gaussian) -> tuple[Gaussian, float, Any]:
    """Return a Gaussian, a number and a shift with value = scale · Gaussian + shift."""
    scale, shift = 1.0, 0.0
    while value.step.affine is not None or is_broadcast(value):
        source, factor, offset = value.step.affine or (value.step.inputs[0], 1.0, 0.0)
        if not isinstance(factor, int | float):
            break
        value, scale, shift = source, scale * factor, shift + scale * offset
    return value, scale, shift


def _knots_of_image(knots: Knots, scale: float, shift: Any) -> Knots:
    """Return where a function of scale · x + shift bends, from its knots."""
    if scale == 1 and isinstance(shift, float) and shift == 0:
        return knots
    pairs = (knot if isinstance(knot, tuple) else (knot, 1.0) for knot in knots)
    return tuple(((location - shift) / scale, width / abs(scale)) for location, width in pairs)


def value_at(value: Any, points: Array) -> Array:
    """Return an argument at points of its driver."""
    return _inside(value(points), value.bounds) if isinstance(value, Deferred) else points


def _inside(values: Array, bounds: Bounds) -> Array:
    """Clip values to an open interval, whose ends rounding reaches."""
    if not bounds.open_ended or math.inf in (-bounds.low, bounds.high):
        return values
    xp = namespace(values)
    smallest, step = float(xp.finfo(values.dtype).tiny), float(xp.finfo(values.dtype).eps)
    low = bounds.low + max(step * abs(bounds.low), smallest)
    high = bounds.high - max(step * abs(bounds.high), smallest)
    return xp.clip(values, min=low, max=high)
