"""Drivers (Gaussians behind the random parameters of a likelihood), and quadrature over them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import BY_DRAWING, OR_DRAW, UnsupportedMoments
from moment_calculus.functions.function_bounds import Bounds, Knots, merge_knots
from moment_calculus.numerics.arrays import Array, positive_part
from moment_calculus.numerics.quadrature import POINTS, even_nodes, nodes, rule_on_trial
from moment_calculus.numerics.special import namespace, safe_scale, to_float64
from moment_calculus.operations.elementwise.arithmetic import is_value, shape_of
from moment_calculus.operations.elementwise.sums import aligned
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Deferred, Gaussian, Value, elementwise_covariance
from moment_calculus.values.ancestry import branches_of, shifted_from
from moment_calculus.values.deferred import as_function
from moment_calculus.values.spread import broadcast_shape, broadcasts_to, overlap

NESTED = 6  # points of a panel if two rules are nested

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
    """Arguments of a function, as functions of at most two jointly Gaussian drivers."""

    gaussians: tuple[Gaussian, ...]  # the drivers, of one shape
    arguments: tuple[Callable[[Sequence[Array]], Any], ...]  # from points of the drivers
    knots: tuple[Knots, ...]  # for each driver, where the arguments bend

    def at(self, points: Sequence[Array]) -> list[Any]:
        """Return all arguments at points of the drivers."""
        return [argument(points) for argument in self.arguments]

    def grid(self, knots: Knots = ()) -> Grid:
        """Return nodes over the drivers in double precision, around ``knots`` of the first, too."""
        first = self.gaussians[0]
        own = merge_knots(self.knots[0], knots)
        if len(self.gaussians) == 1:
            points, weights = points_of(first, own)
            return Grid(weights, (points,), (0,))
        second = self.gaussians[1]  # the outer rule; the inner one is conditional on its points
        outer, outer_weights = points_of(second, self.knots[1], NESTED)
        mean, variance = conditional(first, second, outer)
        points, weights = (
            even_nodes(mean, variance) if rule_on_trial() else nodes(mean, variance, own, NESTED)
        )
        return Grid(weights * outer_weights, (points, outer), (0, 1))


def is_not_gaussian(operand: Any) -> bool:
    """Tell whether a value is a function of a Gaussian, or switched by a mask of dropout."""
    if isinstance(operand, Gaussian):
        return branches_of(operand) is not None
    return isinstance(operand, Deferred)


def points_of(driver: Gaussian, knots: Knots, count: int = POINTS) -> tuple[Array, Array]:
    """Return points and weights [nodes, ...] of a driver, for either outcome of its mask."""
    branches = branches_of(driver)
    if branches is None:
        moments = to_float64(driver.mean), to_float64(driver.variance)
        return even_nodes(*moments) if rule_on_trial() else nodes(*moments, knots, count)
    xp, chance = namespace(driver.mean), to_float64(branches.mask.mean)
    on, off = (_points_of_branch(part, knots, count) for part in (branches.on, branches.off))
    weights = xp.concat([chance * on[1], (1 - chance) * off[1]], axis=0)
    return xp.concat([on[0], off[0]], axis=0), weights


def _points_of_branch(branch: Any, knots: Knots, count: int) -> tuple[Array, Array]:
    if not is_value(branch):
        points = to_float64(branch)[None]
        return points, namespace(points).ones_like(points)
    source = as_function(branch)
    if isinstance(source, Gaussian):
        return points_of(source, knots, count)
    points, weights = points_of(source.base, merge_knots(source.function.knots, (0.0,)), count)
    return source.function(points), weights


def conditional(first: Gaussian, second: Gaussian, points: Array) -> tuple[Array, Array]:
    """Return mean and variance [nodes, *shape] of one value given ``points`` of the other."""
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
    deviation = safe_scale(to_float64(second.variance))
    slope = covariance / deviation
    mean = first.mean + slope / deviation * (points - second.mean)
    variance = positive_part(to_float64(first.variance) - slope * slope)
    return mean, variance + 0 * points


def draw_arguments(
    arguments: Sequence[Any], count: int, noise: Callable[[tuple[int, ...]], Array]
) -> list[Any]:
    """Draw the random arguments [count, ...]: jointly in an element, independently between them."""
    drivers = drivers_of(*arguments)
    if any(map(is_not_gaussian, drivers.gaussians)):
        raise UnsupportedMoments(
            "draws of a parameter of a likelihood that comes straight from dropout",
            sites=frozenset().union(*(driver.sites for driver in drivers.gaussians)),
            remedy="put a linear map between dropout and the parameters" + OR_DRAW,
        )
    points: list[Array] = []
    for driver in reversed(drivers.gaussians):
        mean, variance = to_float64(driver.mean), to_float64(driver.variance)
        if points:
            mean, variance = conditional(driver, drivers.gaussians[1], points[0])
        points.insert(0, mean + variance**0.5 * noise((count, *driver.shape)))
    return drivers.at(points)


def drivers_of(*arguments: Any) -> Drivers:
    """Find the (at most two) Gaussians of which the arguments are elementwise functions."""
    shape = broadcast_shape(*(shape_of(argument) for argument in arguments), ())
    gaussians: list[Gaussian] = []
    knots: list[Knots] = []
    functions = tuple(
        _as_function_of_drivers(argument, shape, gaussians, knots) for argument in arguments
    )
    if len(gaussians) > 2:
        raise UnsupportedMoments(
            f"the parameters of a likelihood are functions of {len(gaussians)} different "
            "Gaussians; at most two are integrated",
            sites=frozenset().union(*(gaussian.sites for gaussian in gaussians)),
            remedy=HEADS_REMEDY,
        )
    return Drivers(tuple(gaussians), functions, tuple(knots))


def _as_function_of_drivers(
    argument: Any, shape: tuple[int, ...], drivers: list[Gaussian], knots: list[Knots]
) -> Callable[[Sequence[Array]], Any]:
    """Return an argument as a function of the drivers' points; append its driver if it is new."""
    if not is_value(argument):
        if hasattr(argument, "gaussian"):
            argument.gaussian()  # raises UnsupportedMoments
        return lambda points: argument
    wide = broadcast(argument, shape)
    base = wide.base if isinstance(wide, Deferred) else wide
    bends = wide.function.knots if isinstance(wide, Deferred) else ()
    for place, driver in enumerate(drivers):
        if driver is base or shifted_from(driver) is shifted_from(base):
            shift = 0.0 if driver is base else base.mean - driver.mean
            knots[place] = merge_knots(knots[place], bends)
            return lambda points: _value_at(wide, points[place] + shift)
    drivers.append(base)
    knots.append(bends)
    last = len(drivers) - 1
    return lambda points: _value_at(wide, points[last])


def _value_at(value: Any, points: Array) -> Array:
    return _inside(value(points), value.bounds) if isinstance(value, Deferred) else points


def _inside(values: Array, bounds: Bounds) -> Array:
    """Clip values to an open interval: rounding reaches its ends, where densities vanish."""
    if not bounds.open_ended or math.inf in (-bounds.low, bounds.high):
        return values
    xp = namespace(values)
    smallest, step = float(xp.finfo(values.dtype).tiny), float(xp.finfo(values.dtype).eps)
    low = bounds.low + max(step * abs(bounds.low), smallest)
    high = bounds.high - max(step * abs(bounds.high), smallest)
    return xp.clip(values, min=low, max=high)


def check_univariate(fn: Any, arguments: Sequence[Value]) -> None:
    """Raise UnsupportedMoments unless the random parameters broadcast to a univariate batch."""
    fits = all(broadcasts_to(argument.shape, fn.batch_shape) for argument in arguments)
    if fn.event_dim or not fits:
        raise not_univariate(fn, frozenset().union(*(argument.sites for argument in arguments)))


def check_unconstrained(
    fn: Any,
    parameters: Iterable[tuple[str, Any, Any]],  # name, value and constraint
    is_real: Callable[[Any], bool],  # whether a constraint allows all real numbers
    *,
    link_names: str,  # names of functions with confined values, for the message
) -> None:
    """Raise UnsupportedMoments if a parameter is Gaussian although it has a constraint."""
    # A Gaussian leaves every interval: mass outside would be integrated without a
    # warning.
    for name, value, constraint in parameters:
        if isinstance(value, Gaussian) and not is_real(constraint):
            raise gaussian_with_constraint(
                name, fn, constraint, sites=value.sites, link_names=link_names
            )


def fill_outside_support(support: Any, value: Any, results: Any, below: float, above: float) -> Any:
    """Return a function's results, replaced where the value is below or above the support."""
    # Frameworks do not check this: a density formula goes on beyond an end that is a
    # parameter.
    low, high = support_bounds(support, lambda end: False)
    xp = namespace(results)
    return xp.where(value < low, below, xp.where(value > high, above, results))


def support_bounds(support: Any, is_random: Callable[[Any], bool]) -> tuple[Any, Any]:
    """Return the ends between which all draws are; infinite where an end is random or missing."""
    ends = ("lower_bound", -math.inf), ("upper_bound", math.inf)
    candidates = [(getattr(support, name, None), other) for name, other in ends]
    low, high = (other if end is None or is_random(end) else end for end, other in candidates)
    if support.is_discrete and low == -math.inf:  # a boolean support has no ends
        low = 0
    return low, high


def not_univariate(fn: Any, sites: Iterable[str]) -> UnsupportedMoments:
    """Return the error for random parameters that are not one for each element of the batch."""
    return UnsupportedMoments(
        f"the random parameters of a {type(fn).__name__} are not those of a univariate "
        "distribution, one for each element of its batch",
        sites=sites,
        remedy=f"draw the latent sites by {BY_DRAWING}",
    )


def gaussian_with_constraint(
    parameter: str, fn: Any, constraint: Any, *, sites: Iterable[str], link_names: str
) -> UnsupportedMoments:
    """Return the error for a Gaussian as a parameter that must stay in an interval."""
    return UnsupportedMoments(
        f"the parameter {parameter} of {type(fn).__name__} is a Gaussian value, or matched by "
        f"one, which is not confined to {constraint}",
        sites=sites,
        remedy=f"make it a function of one Gaussian with such values, e.g. {link_names}, or draw "
        "its sites by naming them in sample_sites=",
    )
