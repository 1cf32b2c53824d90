"""Functions without closed form: integrated by quadrature, and probed at fixed points.

An activation gives f, f′ and its knots. The derivatives of its moments are computed
explicitly (Stein's lemma), so that the backward pass stores no quadrature nodes. Chains of
functions are integrated as one function.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation, Array, normal_hermite
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    cast_clipped,
    namespace,
    safe_scale,
    stop_gradient,
    to_float64,
)
from moment_calculus.numerics.derivatives import elementwise, elementwise_of_statistics
from moment_calculus.numerics.execution import map_chunks, together
from moment_calculus.numerics.quadrature import standard_nodes

# ----------------------------------------------------------------------------------------
# Values of functions at fixed points, with NumPy: a chain whose constants are known numbers
# is a plain function of float64 arrays


TAILS = np.array([-31.7, -17.3, -9.1, -4.3, 4.1, 8.9, 16.7, 30.3])
_STEPS = np.geomspace(1e-4, 1.1e3, 400)
GRID = np.unique(np.concatenate([-_STEPS, _STEPS, np.linspace(-50.0, 50.0, 2001) + 1e-6]))


def values_at(activation: Any, points: np.ndarray) -> np.ndarray | None:
    """Return the values at float64 points [n]; None if parameters are arrays."""
    if getattr(activation, "constants", frozenset()) is None:
        return None
    try:
        with np.errstate(all="ignore"):
            values = activation(points)
    except (RuntimeError, TypeError, ValueError):  # arrays of another framework or shape
        return None
    plain = type(values) is np.ndarray and values.shape == points.shape
    return values if plain and values.dtype == np.float64 else None


def crossings(activation: Any, level: float) -> tuple[tuple[float, float], ...]:
    """Find where a function crosses a level within ±1100, and |dx/df| there, by bisection.

    Two crossings closer than the points of the grid (1/20 up to 50, 4 % beyond) may be
    missed.
    """
    values = values_at(activation, GRID)
    if values is None:
        return ()
    above = values > level
    (places,) = np.nonzero(above[1:] != above[:-1])
    low, high, start = GRID[places], GRID[places + 1], above[places]
    secants = (values[places + 1] - values[places]) / (high - low)
    for _ in range(60):
        middle = (low + high) / 2
        found = values_at(activation, middle)
        same = (found > level) == start if found is not None else start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    slopes = activation.derivative(low) if isinstance(activation, Smooth) else secants
    stretch = 1 / np.clip(np.abs(slopes), 1e-3, 1e3)
    return tuple(zip(low.tolist(), stretch.tolist(), strict=True))


_cached_crossings = functools.lru_cache(maxsize=256)(crossings)


def agrees_in_the_tails(activation: Any, match: Any) -> bool:
    """Return whether two functions agree relatively at :data:`TAILS`, where they may be small.

    Absolute agreement would not show that both are positive there.
    """
    first, second = values_at(activation, TAILS), values_at(match, TAILS)
    return (
        first is not None and second is not None and np.allclose(first, second, rtol=1e-3, atol=0)
    )


# ----------------------------------------------------------------------------------------
# Activations given by f and f′


CHUNK = 1024  # elements integrated together: about 2 MB for each array of nodes


class Smooth(Activation):
    """A continuous function, integrated in double precision by the universal quadrature rule.

    Moments and expected derivative have relative errors of 1e-9 for |μ/σ| ≤ 8 and σ from
    1e-3 to 1e2 (measured; the variance of hardswish 2e-7); in single precision the
    rounding of the arguments is added. A subclass overrides what it knows in closed form.
    JAX has double precision only with ``jax_enable_x64``: without it, variances at σ <
    1e-3 lose digits, as f(x) − f(μ) rounds.
    """

    appell = True

    @abstractmethod
    def derivative(self, x: Array) -> Array:
        """Evaluate f′.

        Args:
            x: any array.
        """

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Where f crosses a number, as far as :func:`crossings` finds; none for arrays."""
        return _cached_crossings(self, float(level)) if isinstance(level, int | float) else ()

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Mean and variance of f(x) by quadrature."""
        return _differentiable_moments(self)(mean, variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """g_n = σ E[f′ He_{n−1}(z)] / √n! with z = (x − μ)/σ, by quadrature."""
        coefficients = _differentiable_hermite(self, order)(mean, variance)
        return list(coefficients) if isinstance(coefficients, tuple) else [coefficients]

    def slope_coefficients(self, mean: Array, variance: Array, count: int) -> list[Array]:
        """E[f′ He_k(z)] / √k! for k = 0 … count − 1 by quadrature; not meant to be differentiated.

        Args:
            mean: mean of x, in double precision where that exists.
            variance: variance of x, of the same shape.
            count: number of coefficients.
        """
        xp = namespace(mean)
        z, weights, difference, start = _integrand(self, mean, variance, self.derivative)
        terms = normal_hermite(
            z, weights, count, reduce=lambda basis: xp.sum(basis * difference, axis=0)
        )
        return [start + terms[0], *terms[1:]]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative by quadrature."""
        return _differentiable_gain(self)(mean, variance)


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function compute in double precision and return that of its first argument."""

    @functools.wraps(function)
    def wide(*arrays: Array) -> tuple[Array, ...]:
        return tuple(
            cast_clipped(result, arrays[0]) for result in function(*map(to_float64, arrays))
        )

    return wide


def in_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an elementwise function process :data:`CHUNK` elements at a time."""

    @functools.wraps(function)
    def chunked(mean: Array, variance: Array) -> tuple[Array, ...]:
        if math.prod(mean.shape) <= CHUNK:
            return function(mean, variance)
        return map_chunks(
            function, [mean, namespace(mean).broadcast_to(variance, mean.shape)], CHUNK
        )

    return chunked


def _integrand(activation: Smooth, mean: Array, variance: Array, function: Callable) -> Any:
    """Return steps z, weights, g − g(μ) at the nodes, and g(μ), for g = ``function``."""
    scale = safe_scale(variance)
    z, weights = standard_nodes(mean, scale, activation.knots)
    centre = function(mean)
    return z, weights, function(mean + scale * z) - centre, centre


def derivative_by_variance(slope: Array, variance: Array, limit: Array | float = 0.0) -> Array:
    """Return ∂/∂v = ∂/∂σ / 2σ of a derivative by σ, and ``limit`` where v is zero."""
    xp = namespace(variance)
    return xp.where(variance > TINY_VARIANCE, slope / (2 * safe_scale(variance)), limit + 0 * slope)


@functools.lru_cache(maxsize=256)
def _differentiable_moments(activation: Smooth) -> Callable[..., Any]:
    @in_double
    @in_chunks
    def statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        z, weights, difference, centre = _integrand(activation, mean, variance, activation)
        slope = activation.derivative(mean + safe_scale(variance) * z)
        start = activation.derivative(mean)
        shift = xp.sum(weights * difference, axis=0)
        difference = difference - shift
        weighted = weights * difference
        return (
            centre + shift,
            xp.sum(weights * difference**2, axis=0),
            xp.sum(weights * slope, axis=0),
            derivative_by_variance(xp.sum(weights * z * (slope - start), axis=0), variance),
            2 * xp.sum(weighted * slope, axis=0),
            derivative_by_variance(
                2 * xp.sum(z * weighted * slope, axis=0), variance, start * start
            ),
        )

    return elementwise_of_statistics(statistics, 2)


@functools.lru_cache(maxsize=256)
def _differentiable_hermite(activation: Smooth, order: int) -> Callable[..., Any]:
    @in_double
    @in_chunks
    def values(mean: Array, variance: Array) -> tuple[Array, ...]:
        scale = safe_scale(variance)
        terms = activation.slope_coefficients(mean, variance, order)
        return tuple(scale * term / math.sqrt(n) for n, term in enumerate(terms, start=1))

    @in_double
    @in_chunks
    def slopes(mean: Array, variance: Array) -> tuple[Array, ...]:
        terms = activation.slope_coefficients(mean, variance, order + 2)
        by_scale = [
            math.sqrt(n) * terms[n - 1] + math.sqrt(n + 1) * terms[n + 1]
            for n in range(1, order + 1)
        ]
        return (
            *terms[1 : order + 1],
            *(derivative_by_variance(slope, variance) for slope in by_scale),
        )

    def partials(mean: Array, variance: Array) -> Any:
        rows = slopes(mean, variance)
        return tuple(zip(rows[:order], rows[order:], strict=True))

    return elementwise(values, partials)


@functools.lru_cache(maxsize=256)
def _differentiable_gain(activation: Smooth) -> Callable[..., Any]:
    @in_double
    @in_chunks
    def values(mean: Array, variance: Array) -> tuple[Array]:
        return (activation.slope_coefficients(mean, variance, 1)[0],)

    @in_double
    @in_chunks
    def slopes(mean: Array, variance: Array) -> tuple[Array, Array]:
        xp = namespace(mean)
        _, bend, curve = activation.slope_coefficients(mean, variance, 3)
        # where f′ hardly varies, its differences are rounding
        rounding = 1e4 * float(xp.finfo(variance.dtype).eps)
        zero, scale = xp.zeros_like(bend), safe_scale(variance)
        return (
            xp.where(scale > rounding, bend / scale, zero),
            xp.where(variance > rounding, curve / (scale * scale * math.sqrt(2)), zero),
        )

    return elementwise(lambda *arrays: values(*arrays)[0], lambda *arrays: (slopes(*arrays),))


# ----------------------------------------------------------------------------------------
# Any elementwise function


NARROW = 1e-3  # below this standard deviation the points move, see _differentiable


@dataclass(frozen=True)
class Integrated(Activation):
    """An elementwise function without closed form, integrated in double precision."""

    # The knots of a chain are those of its functions, mapped back through the inner ones.
    # Measured relative errors of mean and variance for |μ/σ| ≤ 8, σ from 1e-3 to 1e2 (10
    # for powers of what grows exponentially): tanh(tanh x) 1e-11, |tanh x| 1e-12, 1/(0.1
    # + softplus x) 5e-10, x S(x) 1e-9; relu(mish x − 0.3) 1e-8 while the kink is within
    # 6σ of μ, 4e-5 at 8σ and 2e-3 at 11σ, where the mean is 1e-30. Single precision adds
    # the rounding of the arguments. An unknown kink (behind a sum or product of two
    # functions, or where an array shifts a function without known inverse) costs up to
    # 1.4e-3 σ for a change of slope by one, and 4e-2 for a jump by one; the same in the
    # variance, in units of σ² and one.

    function: Callable[[Array], Array]
    # knots, or a function that computes them; see
    # moment_calculus.numerics.quadrature.nodes
    places: tuple[Any, ...] | Callable[[], tuple[Any, ...]] = field(default=(0.0,), compare=False)
    # numbers by which a chain multiplies and shifts; None if some are arrays
    constants: frozenset[float] | None = field(default=frozenset(), compare=False)
    name = "integrated"
    superlinear = True  # unknown: the safe choice

    @functools.cached_property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the places around which the function changes, computed once."""
        return self.places() if callable(self.places) else self.places

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x)

    def _values(self, mean: Array, variance: Array) -> tuple[Array, Array, Array, Array]:
        """Return steps, weights, f(x) − f(μ) at the nodes [nodes, ...], and f(μ)."""
        xp = namespace(mean)
        mean, scale = to_float64(mean), safe_scale(to_float64(variance))
        z, weights = standard_nodes(mean, scale, self.knots)
        points, z, weights = _differentiable(mean, scale, z, weights)
        limit = math.sqrt(float(xp.finfo(mean.dtype).max)) / 1e6
        centre = xp.clip(to_float64(self(mean)), min=-limit, max=limit)
        values = xp.clip(to_float64(self(points)), min=-limit, max=limit)
        return z, weights, values - stop_gradient(centre), stop_gradient(centre)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of f(x) by quadrature."""
        xp = namespace(mean)
        _, weights, difference, centre = self._values(mean, variance)
        shift = xp.sum(weights * difference, axis=0)
        spread = xp.sum(weights * (difference - shift) ** 2, axis=0)
        return cast_clipped(centre + shift, mean), cast_clipped(spread, mean)

    def hermite(self, mean: Array, variance: Array, order: int) -> Array:
        """Return the Hermite coefficients by quadrature, along a leading axis."""
        z, weights, difference, _ = self._values(mean, variance)
        total = lambda basis: namespace(mean).sum(basis * difference, axis=0)  # noqa: E731
        sums = normal_hermite(z, weights, order + 1, reduce=total)
        return cast_clipped(together(sums[1:]), mean)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative by quadrature, from E[z f(x)] / σ."""
        xp = namespace(mean)
        z, weights, difference, _ = self._values(mean, variance)
        scale = safe_scale(to_float64(variance))
        return cast_clipped(xp.sum(z * weights * difference, axis=0) / scale, mean)


@dataclass(frozen=True)
class IntegratedWithInverse(Integrated):
    """A function without closed form that declares its name, bounds and inverse."""

    name: str = "declared"
    bounds: tuple[float, float] = (-math.inf, math.inf)
    open_ended: bool = False
    # from a level to preimages, as :meth:`Activation.preimages`
    inverse: Callable[[Any], tuple[tuple[Any, Any], ...]] = field(
        default=lambda level: (), compare=False
    )

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return where the function takes a value, by the declared inverse."""
        return self.inverse(level)


def _differentiable(mean: Array, scale: Array, z: Array, weights: Array) -> tuple[Array, ...]:
    """Return points, steps and weights that carry the derivatives by the mean and the scale.

    Fixed points with a changing density give the right derivative even where f jumps. For
    a small σ that cancels: there the points move, and the contribution of a jump is lost.
    """
    xp = namespace(mean)
    moving = mean + scale * z
    constant = stop_gradient(moving)
    narrow = scale < NARROW
    away = (constant - mean) / scale
    exponent = away * away * -0.5 - xp.log(scale)
    ratio = xp.where(narrow, xp.ones_like(z), xp.exp(exponent - stop_gradient(exponent)))
    return xp.where(narrow, moving, constant), xp.where(narrow, z, away), weights * ratio
