"""Expectations of functions of random parameters, by quadrature over the Gaussians behind them.

They serve every univariate likelihood: its log density, and the mean and variance of its
observations, are such functions. Drivers are the Gaussians of which the parameters are functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.functions.base import Rescaled
from moment_calculus.functions.combinators import Bounds, Knots, Scaled, merge_knots
from moment_calculus.functions.families.elementary import Exp, infinite_where_capped
from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    namespace,
    positive_part,
    restore_infinities,
    safe_scale,
    stop_gradient,
    to_float64,
)
from moment_calculus.numerics.distributions import entropy_term_from_log
from moment_calculus.numerics.quadrature import (
    POINTS,
    even_nodes,
    even_rule,
    gauss_hermite,
    log_mean_exp,
    log_weights,
    nodes,
    rule_on_trial,
)
from moment_calculus.operations.elementwise.elementary import is_positive
from moment_calculus.operations.elementwise.sums import aligned
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.shapes.reshaping import Expanded, broadcast
from moment_calculus.values import Deferred, Gaussian, elementwise_covariance
from moment_calculus.values.ancestry import branches_of, shifted_from
from moment_calculus.values.deferred import as_function
from moment_calculus.values.spread import broadcast_shape, overlap

NESTED = 6  # points of a panel if two rules are nested
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


def points_of(driver: Gaussian, knots: Knots, count: int = POINTS) -> tuple[Array, Array]:
    """Return points and weights [nodes, ...] of a driver, for both mask outcomes."""
    branches = branches_of(driver)
    if branches is None:
        moments = to_float64(driver.mean), to_float64(driver.variance)
        return even_nodes(*moments) if rule_on_trial() else nodes(*moments, knots, count)
    xp, chance = namespace(driver.mean), to_float64(branches.mask.mean)
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
    places, weights = gauss_hermite(THIRD)
    mean, deviation = to_float64(driver.mean), safe_scale(to_float64(driver.variance))
    column = lambda part: constants(part.reshape((-1,) + (1,) * len(driver.shape)), mean)  # noqa: E731
    return mean + deviation * column(places), column(weights) + 0 * mean


def averaged_over(parameter: Any, rule: Callable[..., Array], *others: Any) -> Array:
    """Return E rule(parameter, *others) over a parameter that is independent of the others.

    The rule takes points of the parameter and the others with one more leading axis.
    """
    shape = broadcast_shape(*(shape_of(part) for part in (parameter, *others)))
    wide = broadcast(parameter, shape)
    driver = wide.base if isinstance(wide, Deferred) else wide
    points, weights = independent_points(driver, [part for part in others if is_value(part)])
    repeated = (
        broadcast(part, (len(points), *shape)) if is_value(part) else part for part in others
    )
    return _average(
        Grid(weights, (points,), (0,)), rule(_value_at(wide, points), *repeated), driver.mean
    )


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
    deviation = safe_scale(to_float64(second.variance))
    slope = covariance / deviation
    mean = first.mean + slope / deviation * (points - second.mean)
    variance = positive_part(to_float64(first.variance) - slope * slope)
    return mean, variance + 0 * points


def draw_arguments(
    arguments: Sequence[Any], count: int, noise: Callable[[tuple[int, ...]], Array]
) -> list[Any]:
    """Draw random arguments [count, ...], jointly in an element alone."""
    drivers = drivers_of(*arguments)
    if any(map(is_not_gaussian, drivers.gaussians)):
        raise UnsupportedMoments(
            "draws of a parameter of a likelihood that comes straight from dropout",
            sites=frozenset().union(*(driver.sites for driver in drivers.gaussians)),
            remedy="put a linear map between dropout and the parameters" + OR_DRAW,
        )
    points: list[Array] = []
    for place, driver in reversed([*enumerate(drivers.gaussians)]):
        mean, variance = to_float64(driver.mean), to_float64(driver.variance)
        if place == 0 and points:
            mean, variance = conditional(driver, drivers.gaussians[1], points[0])
        points.insert(0, mean + variance**0.5 * noise((count, *driver.shape)))
    return drivers.at(points)


def drivers_of(*arguments: Any) -> Drivers:
    """Find the (at most three) Gaussians that drive the arguments elementwise."""
    shape = broadcast_shape(*(shape_of(argument) for argument in arguments), ())
    gaussians: list[Gaussian] = []
    knots: list[Knots] = []
    functions = tuple(
        _as_function_of_drivers(argument, shape, gaussians, knots) for argument in arguments
    )
    if len(gaussians) > 3:
        raise UnsupportedMoments(
            f"the parameters of a likelihood are functions of {len(gaussians)} different "
            "Gaussians; at most three are integrated",
            sites=frozenset().union(*(gaussian.sites for gaussian in gaussians)),
            remedy=HEADS_REMEDY,
        )
    return Drivers(tuple(gaussians), functions, tuple(knots))


def _as_function_of_drivers(
    argument: Any, shape: tuple[int, ...], drivers: list[Gaussian], knots: list[Knots]
) -> Callable[[Sequence[Array]], Any]:
    """Return an argument as a function of drivers' points; append a new driver."""
    if not is_value(argument):
        if hasattr(argument, "gaussian"):
            argument.gaussian()  # raises UnsupportedMoments
        return lambda points: argument
    if (factors := positive_factors(argument)) is not None:
        one, other = (_as_function_of_drivers(part, shape, drivers, knots) for part in factors)
        return lambda points: one(points) * other(points)
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


def positive_factors(value: Any) -> tuple[Deferred, Deferred] | None:
    """Return the factors of a product of positive functions of different Gaussians; else None.

    The product as a value is matched by a Gaussian, which takes negative values.
    """
    product = _narrow(value)
    if not isinstance(product, Gaussian) or not product.step.is_product:
        return None
    one, other = (as_function(_narrow(factor)) for factor in product.step.inputs)
    if not (isinstance(one, Deferred) and isinstance(other, Deferred)):
        return None
    return (one, other) if is_positive(one) and is_positive(other) else None


def _narrow(value: Any) -> Any:
    """Return the value that was broadcast to this one."""
    while isinstance(value, Gaussian) and isinstance(value.step, Expanded):
        value = value.step.source
    return value


def _value_at(value: Any, points: Array) -> Array:
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


ZOOMS = 3  # each locates the peak of a density about 20 times more precisely
WIDTHS = (1.0, 1e-2, 1e-4)  # of panels around it, which resolve peaks of width 1e-5 to 36
NAN_WEIGHT = 1e-9  # total weight of nodes where a function may be NaN
_GROWING = (Exp, Rescaled)


def expected_value(operand: Any) -> Any:
    """Return E[x] of a value; an array or number is returned as it is."""
    if not hasattr(operand, "gaussian"):
        return operand
    function = getattr(operand, "function", None)
    if isinstance(function, Scaled):
        return function.scale * expected_value(operand.of(function.inner)) + function.shift
    mean = operand.expectation if isinstance(operand, Deferred) else operand.gaussian().mean
    # A mean of exponentials beyond the range of the dtype is infinite, without a
    # gradient.
    return infinite_where_capped(mean) if type(function) in _GROWING else mean


def expectation(
    function: Callable[..., Array], *arguments: Any, knots: tuple[Any, ...] = ()
) -> Array:
    """Return E[f(a, b, …)] of values that at most two Gaussians drive, by (nested) quadrature.

    f changes at ``knots`` of the first random argument's Gaussian. Two Gaussians need 20
    000 evaluations of f per element.
    """
    # Measured relative error for log densities: 1e-9 over one Gaussian, at standard
    # deviations of 1e-3 to 1e2; over two (logistic density, softplus scale) 5e-11, 4e-6
    # and 8e-4 if the scale's Gaussian has a standard deviation of 0.1, 1 and 3: f is then
    # sharper than the panels.
    drivers = drivers_of(*arguments)
    if not drivers.gaussians:
        return function(*arguments)
    grid = drivers.grid(knots or (0.0,))
    return restore_infinities(_average(grid, function(*drivers.at(grid.points)), _like(drivers)))


def smooth_expectation(function: Callable[..., Array], *arguments: Any) -> Array:
    """Return :func:`expectation` of a function without bends, by a tenth of the points."""
    with even_rule():
        return expectation(function, *arguments)


def _like(drivers: Drivers) -> Array:
    return drivers.gaussians[0].mean


def _average(grid: Grid, values: Array, like: Array) -> Array:
    return cast_clipped(_total(grid, values), like)


def _total(grid: Grid, values: Array) -> Array:
    """Return the weighted sum over the nodes, but for weights that underflow."""
    xp = namespace(grid.weights)
    counted = xp.where(grid.weights > 0, values, 0 * grid.weights)
    return xp.sum(grid.weights * counted, axis=grid.axes)


def moments_of_observation(
    mean: Callable[..., Array], variance: Callable[..., Array], *arguments: Any
) -> tuple[Array, Array, Array]:
    """Return predictive mean E[m], epistemic variance Var[m] and aleatoric variance E[s²].

    The functions ``mean`` m and ``variance`` s² take the parameters (law of total
    variance).
    """
    drivers = drivers_of(*arguments)
    if not drivers.gaussians:
        centre = mean(*arguments)
        return centre, 0 * centre, variance(*arguments) + 0 * centre
    grid = drivers.grid((0.0,))
    values = drivers.at(grid.points)
    means = mean(*values) + 0 * grid.weights
    centre = _average(grid, means, grid.weights)
    like = _like(drivers)
    spread = _average(grid, (means - centre) ** 2, like)
    xp = namespace(means)
    # Without a mean there is no variance either.
    undefined = xp.where(xp.isnan(means), means, xp.zeros_like(means))
    noise = _total(grid, variance(*values) + undefined)
    aleatoric = cast_clipped(noise, like)
    # Where s² is infinite, so is its mean.
    aleatoric = xp.where(xp.isinf(noise), math.inf, restore_infinities(aleatoric))
    return restore_infinities(cast_clipped(centre, like)), restore_infinities(spread), aleatoric


def log_expectation(
    function: Callable[..., Array],
    *arguments: Any,
    knots: tuple[Any, ...] = (),
    power: Any = 1.0,  # a > 0, broadcastable with the arguments
    sharp: bool = True,  # whether f may be sharper than one unit of the Gaussians, off the knots
) -> Array:
    """Return (1/a) log E[exp(a f)]: for a log density f and a = 1 the log predictive density.

    Panels close in on the peak of exp(a f). Measured absolute error: 1e-7 over one
    Gaussian for peaks of width 1e-5 to 36 and more within 10 standard deviations of its
    mean (beyond 14 the result is too low); over two 5e-10 if the scale's Gaussian has a
    standard deviation up to 1, and 6e-4 if it is 3. For small powers it tends to E[f]
    without cancellation.
    """
    drivers = drivers_of(power, *arguments)
    if not drivers.gaussians:
        return function(*arguments)

    def raised(power: Any, *points: Any) -> Array:
        return power * function(*points)

    grid, values = _refined_grid(drivers, raised, _peak_point, knots, sharp)
    xp = namespace(values)
    is_nan = xp.isnan(values)
    nan_weight = _total(grid, xp.where(is_nan, 1.0, 0 * grid.weights))
    log_zero = -float(xp.finfo(values.dtype).max) / 4  # logarithm of a density of zero
    log_values = xp.where(is_nan | (values < log_zero), log_zero, values)
    result = log_mean_exp(log_values, grid.weights, len(grid.axes)) / power
    return cast_clipped(xp.where(nan_weight < NAN_WEIGHT, result, math.nan), _like(drivers))


def expected_probability(
    function: Callable[..., Array], *arguments: Any, knots: tuple[Any, ...] = ()
) -> Array:
    """Return E[F(a, b, …)] of a distribution function F, which may be a sharp step, in float64.

    F is monotone in its first random argument. Measured absolute error over one Gaussian:
    1e-12 for steps wider than 1e-4 of its standard deviation, 1e-6 for sharper ones; over
    two (a location, the logarithm of its scale) 1e-9 and 1e-6 if the second has a
    standard deviation of 1 and 3.
    """
    drivers = drivers_of(*arguments)
    if not drivers.gaussians:
        return function(*arguments)
    grid, values = _refined_grid(drivers, function, _steepest_point, knots)
    xp = namespace(values)
    is_nan = xp.isnan(values)
    nan_weight = _total(grid, xp.where(is_nan, 1.0, 0 * grid.weights))
    result = _total(grid, xp.where(is_nan, 0.0, values))
    return xp.where(nan_weight < NAN_WEIGHT, result, math.nan)


def _refined_grid(
    drivers: Drivers,
    function: Callable[..., Array],
    locate: Callable,
    initial_knots: tuple[Any, ...],
    sharp: bool = True,
) -> tuple[Grid, Array]:
    """Return a grid around where the function matters most, and values there."""
    initial_knots = knots = initial_knots or (0.0,)
    zooms, widths = (ZOOMS, WIDTHS) if len(drivers.gaussians) == 1 else (1, WIDTHS[:2])
    for _ in range(zooms if sharp and not rule_on_trial() else 0):
        grid = drivers.grid(knots)
        centre = locate(grid, function(*drivers.at(grid.points)))
        knots = (*initial_knots, *((centre, width) for width in widths))
    grid = drivers.grid(knots)
    return grid, function(*drivers.at(grid.points))


def _peak_point(grid: Grid, log_density: Array) -> Array:
    """Return the first driver's densest point for every point of the second."""
    terms = stop_gradient(log_density) + log_weights(grid.weights)
    xp = namespace(terms)
    terms = xp.where(xp.isnan(terms), -math.inf, terms)
    place = xp.argmax(terms, axis=0, keepdims=True)
    return _point_at(grid, terms, place)


def _steepest_point(grid: Grid, probability: Array) -> Array:
    """Return the first driver's point where a probability changes most."""
    xp = namespace(probability)
    jumps = xp.abs(probability[1:] - probability[:-1])
    place = xp.argmax(xp.where(xp.isnan(jumps), 0.0, jumps), axis=0, keepdims=True)
    return (_point_at(grid, probability, place) + _point_at(grid, probability, place + 1)) / 2


def _point_at(grid: Grid, like: Array, place: Array) -> Array:
    xp = namespace(like)
    points = xp.broadcast_to(stop_gradient(grid.points[0]), like.shape)
    return xp.take_along_axis(points, place, axis=0)[0]


def check_certain(**parameters: Any) -> None:
    """Raise UnsupportedMoments if a parameter (by name) is random."""
    for name, parameter in parameters.items():
        if is_value(parameter) or hasattr(parameter, "gaussian"):
            raise UnsupportedMoments(
                f"the parameter {name} is random",
                sites=parameter.sites,
                remedy=f"make {name} certain, or draw its sites by naming them in sample_sites=",
            )


def expected_surprisal(log_prob: Callable[..., Array], value: Array, *arguments: Any) -> Array:
    """Return E[−p log p] of counts [counts, ...]: their sum is the expected entropy."""
    # All counts share their nodes: the sum is smooth in the parameters, even where a
    # single term is sharper than the nodes are close.
    return expectation(
        lambda value, *points: entropy_term_from_log(log_prob(value, *points)), value, *arguments
    )


def tempered_factor(power: Any, log_factor: Any) -> Array:
    """Return (1/a) log E[exp(a f)] of a log factor f; of a Gaussian m + ½ a v."""
    if isinstance(log_factor, Gaussian):
        return log_factor.mean + 0.5 * power * log_factor.variance
    return log_expectation(lambda f: f, log_factor, power=power)
