"""Activations without closed form: a subclass gives f, f′ and its knots, quadrature the rest.

The derivatives of the moments are computed explicitly (Stein's lemma), so that the
backward pass stores no quadrature nodes.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation, Array, normal_hermite
from moment_calculus.numerics.execution import map_chunks
from moment_calculus.numerics.quadrature import standard_nodes
from moment_calculus.numerics.special import (
    TINY_VARIANCE,
    cast_clipped,
    elementwise,
    namespace,
    safe_scale,
    to_float64,
)

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
        """Where f crosses a number between −50 and 50, and |dx/df|; nothing is known of arrays."""
        return _bisected_crossings(self, float(level)) if isinstance(level, int | float) else ()

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
        z, weights, rise, start = _integrand(self, mean, variance, self.derivative)
        terms = normal_hermite(z, weights, count, reduce=lambda basis: xp.sum(basis * rise, axis=0))
        return [start + terms[0], *terms[1:]]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative by quadrature."""
        return _differentiable_gain(self)(mean, variance)


@functools.lru_cache(maxsize=256)
def _bisected_crossings(activation: Smooth, level: float) -> tuple[tuple[float, float], ...]:
    """Find where f(x) = level for |x| ≤ 50, and |dx/df| there, by bisection."""
    grid = np.linspace(-50.0, 50.0, 4001) + 1e-6
    above = activation(grid) > level
    (places,) = np.nonzero(above[1:] != above[:-1])
    low, high, start = grid[places], grid[places + 1], above[places]
    for _ in range(45):
        middle = (low + high) / 2
        same = (activation(middle) > level) == start
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    slopes = np.maximum(np.abs(activation.derivative(low)), 1e-3)
    return tuple(zip(low.tolist(), (1 / slopes).tolist(), strict=True))


def in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function compute in double precision and return that of its first argument."""

    @functools.wraps(function)
    def wide(*arrays: Array) -> tuple[Array, ...]:
        return tuple(
            cast_clipped(result, arrays[0]) for result in function(*map(to_float64, arrays))
        )

    return wide


def in_chunks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an elementwise function process :data:`CHUNK` elements at a time, to save memory."""

    @functools.wraps(function)
    def chunked(mean: Array, variance: Array) -> tuple[Array, ...]:
        if math.prod(mean.shape) <= CHUNK:
            return function(mean, variance)
        return map_chunks(
            function, [mean, namespace(mean).broadcast_to(variance, mean.shape)], CHUNK
        )

    return chunked


def _integrand(activation: Smooth, mean: Array, variance: Array, function: Callable) -> Any:
    """Return steps z, weights, g at the nodes minus g(μ), and g(μ), for g = ``function``."""
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
    def values(mean: Array, variance: Array) -> tuple[Array, Array]:
        xp = namespace(mean)
        _, weights, rise, centre = _integrand(activation, mean, variance, activation)
        shift = xp.sum(weights * rise, axis=0)
        return centre + shift, xp.sum(weights * (rise - shift) ** 2, axis=0)

    @in_double
    @in_chunks
    def slopes(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        z, weights, rise, _ = _integrand(activation, mean, variance, activation)
        slope = activation.derivative(mean + safe_scale(variance) * z)
        rise = weights * (rise - xp.sum(weights * rise, axis=0))
        start = activation.derivative(mean)
        return (
            xp.sum(weights * slope, axis=0),
            derivative_by_variance(xp.sum(weights * z * (slope - start), axis=0), variance),
            2 * xp.sum(rise * slope, axis=0),
            derivative_by_variance(2 * xp.sum(z * rise * slope, axis=0), variance, start * start),
        )

    def partials(mean: Array, variance: Array) -> Any:
        first, second, third, fourth = slopes(mean, variance)
        return (first, second), (third, fourth)

    return elementwise(values, partials)


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
        random = variance > 1e4 * float(xp.finfo(variance.dtype).eps)
        zero, wide = xp.zeros_like(bend), xp.where(random, variance, xp.ones_like(variance))
        return (
            xp.where(random, bend / wide**0.5, zero),
            xp.where(random, curve / (wide * math.sqrt(2)), zero),
        )

    return elementwise(lambda *arrays: values(*arrays)[0], lambda *arrays: (slopes(*arrays),))
