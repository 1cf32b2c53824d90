"""Named smooth functions, given by f, f′ and knots; quadrature integrates them.

Softplus, SiLU, Mish and the tanh form of GELU are smooth rectifiers: 0 far to the left and
x far to the right. Wide Gaussians: f is max(x, 0), in closed form, plus a remainder near 0.
The quadrature nodes of the remainder are the same for all elements: its expectation is a
product of densities with a table. Narrow ones: Gauss–Hermite in differences from f(μ), so
that a small variance does not cancel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.functions.base import Array, inverse_at
from moment_calculus.functions.families.relu import rectified_values_and_partials
from moment_calculus.functions.integrated import (
    Smooth,
    derivative_by_variance,
    in_chunks,
    in_double,
)
from moment_calculus.functions.pairs.mixtures import LOGISTIC, LOGISTIC_GATE
from moment_calculus.functions.series.rectifiers import rectifier_gain, rectifier_moments
from moment_calculus.functions.series.softplus_mean import expected_softplus
from moment_calculus.numerics.arrays import (
    constants,
    expit,
    has_double,
    namespace,
    safe_scale,
)
from moment_calculus.numerics.derivatives import elementwise_of_statistics
from moment_calculus.numerics.execution import where_cheap
from moment_calculus.numerics.normal import is_single_precision
from moment_calculus.numerics.quadrature import gauss_hermite


@dataclass(frozen=True)
class _Rule:
    """Quadrature settings for one precision."""

    narrow: float  # variance up to which Gauss–Hermite serves
    hermite: int  # number of its nodes
    # Edges that resolve the narrowest Gaussian on the left, where the remainder is all
    # there is of f, and the remainder itself on the right.
    panels: tuple[float, ...]
    points: int  # Gauss–Legendre nodes of every panel


RULES = {
    False: _Rule(1.0, 64, (*range(-51, 0, 3), 0.0, 1.5, 3.0, 4.5, 6.0, 8.0, 11.0, 16.0, 32.0), 10),
    True: _Rule(1.0, 28, (*range(-44, -4, 4), -5.0, -2.5, 0.0, 2.0, 4.0, 7.0, 11.0, 18.0), 7),
}


@functools.cache
def _nodes(single: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the Gauss–Legendre nodes of all panels and their weights."""
    edges = np.array(RULES[single].panels)
    points, weights = np.polynomial.legendre.leggauss(RULES[single].points)
    half, centre = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    return (centre + half * points).ravel(), (half * weights).ravel()


@functools.lru_cache(maxsize=256)
def _table(activation: Smooth, single: bool) -> np.ndarray:
    """Return weights times (f − x₊) xᵏ and (f² − x₊²) xᵏ, k = 0, 1, 2: [nodes, 6]."""
    nodes, _ = _nodes(single)
    straight, values = np.maximum(nodes, 0.0), np.asarray(activation(nodes))
    powers = _remainder_table(activation, single)
    return np.concatenate([powers[:, :3], powers[:, :3] * (values + straight)[:, None]], axis=1)


@functools.lru_cache(maxsize=256)
def _remainder_table(activation: Smooth, single: bool) -> np.ndarray:
    """Return weights times (f − x₊) xᵏ, k = 0 … 3: [nodes, 4]."""
    nodes, weights = _nodes(single)
    rest = np.asarray(activation(nodes)) - np.maximum(nodes, 0.0)
    powers = nodes[:, None] ** np.arange(4)
    return powers * (rest * weights / math.sqrt(2 * math.pi))[:, None]


class SmoothRectifier(Smooth):
    """A smooth function that differs from max(x, 0) by O(e^{−|x|})."""

    # Measured relative errors of mean and variance for |μ/σ| ≤ 8 and σ from 1e-3 to 1e2:
    # 1e-7, 2e-5 in single precision, at a tenth of the cost of the universal rule.

    # Set only if f(x) = x + f(−x): width w, and number of terms of the series of f(wx)/w
    # that serve where there is no double precision, see
    # moment_calculus.functions.series.rectifiers.
    series: tuple[float, int] | None = None

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance of f(x)."""
        if self.series is not None and not has_double(mean):
            return rectifier_moments(self)(mean, variance)
        return _differentiable_moments(self, is_single_precision(mean))(mean, variance)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        if self.series is not None and not has_double(mean):
            return rectifier_gain(self)(mean, variance)
        return _differentiable_gain(self, is_single_precision(mean))(mean, variance)


def _wide(table: np.ndarray, single: bool, mean: Array, variance: Array) -> Any:
    """Return the expectations of the columns of a table, of the mean's shape."""
    xp = namespace(mean)
    scale = variance**0.5
    # the sums do not cancel: single precision is enough
    low = xp.float32 if single else mean.dtype
    inverse = xp.astype(1 / scale, low, copy=False)[..., None]
    z = constants(_nodes(single)[0], inverse) * inverse
    z = z - xp.astype(mean / scale, low, copy=False)[..., None]
    # clipped above the subnormal numbers, which are slow
    density = xp.exp(xp.clip(z * z * -0.5, min=-80.0 if single else -600.0)) * inverse
    result = density @ constants(table, density)
    return tuple(xp.astype(result[..., i], mean.dtype) for i in range(result.shape[-1]))


def _wide_statistics(activation: Smooth, single: bool, mean: Array, variance: Array) -> Any:
    """Return both moments, and their derivatives by the mean and the variance."""
    first, spread, *slopes = rectified_values_and_partials(mean, variance)
    sums = _wide(_table(activation, single), single, mean, variance)
    rest, by_mean, by_var = _by_moments(sums[:3], mean, variance)
    square, square_by_mean, square_by_var = _by_moments(sums[3:], mean, variance)
    pull = 2 * (first + rest)
    return (
        first + rest,
        spread + square - rest * (2 * first + rest),
        slopes[0] + by_mean,
        slopes[1] + by_var,
        slopes[2] + square_by_mean - pull * by_mean - 2 * rest * slopes[0],
        slopes[3] + square_by_var - pull * by_var - 2 * rest * slopes[1],
    )


def _by_moments(sums: Any, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return E g, and its derivatives by μ and v, from E g, E gx and E gx²."""
    zeroth, first, second = sums
    centred = second - mean * (2 * first - mean * zeroth)
    return (
        zeroth,
        (first - mean * zeroth) / variance,
        (centred / variance - zeroth) / (2 * variance),
    )


def _hermite_points(single: bool, mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return Gauss–Hermite weights, steps z and points μ + σz, on a trailing axis."""
    z, weights = (constants(values, mean) for values in gauss_hermite(RULES[single].hermite))
    return weights, z, mean[..., None] + safe_scale(variance)[..., None] * z


def _narrow_statistics(activation: Smooth, single: bool, mean: Array, variance: Array) -> Any:
    """Return both moments, and their derivatives by the mean and the variance."""
    xp = namespace(mean)
    weights, z, points = _hermite_points(single, mean, variance)
    centre = activation(mean)
    difference = activation(points) - centre[..., None]
    shift = xp.sum(weights * difference, axis=-1)
    difference = difference - shift[..., None]
    weighted = weights * difference
    slope, start = activation.derivative(points), activation.derivative(mean)
    bend = xp.sum(weights * z * (slope - start[..., None]), axis=-1)
    return (
        centre + shift,
        xp.sum(weights * difference**2, axis=-1),
        xp.sum(weights * slope, axis=-1),
        derivative_by_variance(bend, variance),
        2 * xp.sum(weighted * slope, axis=-1),
        derivative_by_variance(2 * xp.sum(z * weighted * slope, axis=-1), variance, start * start),
    )


@functools.lru_cache(maxsize=256)
def _differentiable_moments(activation: Smooth, single: bool) -> Callable[..., Any]:
    limit = RULES[single].narrow

    def small(mean: Array, variance: Array) -> tuple[Array, ...]:
        limited = namespace(mean).clip(variance, max=limit)
        return _narrow_statistics(activation, single, mean, limited)

    def narrow_or_wide(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp, narrow = namespace(mean), variance < limit
        wide = _wide_statistics(activation, single, mean, xp.clip(variance, min=limit))
        pairs = zip(small(mean, variance), wide, strict=True)
        return tuple(xp.where(narrow, a, b) for a, b in pairs)

    @in_double
    @in_chunks
    def statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
        centre, spread, *slopes = where_cheap(
            variance < limit, small, narrow_or_wide, mean, variance
        )
        return centre, namespace(spread).clip(spread, min=0.0), *slopes

    return elementwise_of_statistics(statistics, 2)


# ----------------------------------------------------------------------------------------
# The functions


def log_1p_exp(x: Array) -> Array:
    """Return log(1 + eˣ), without overflow."""
    xp = namespace(x)
    return xp.clip(x, min=0.0) + xp.log1p(xp.exp(-xp.abs(x)))


def _wide_slopes(activation: Smooth, single: bool, mean: Array, variance: Array) -> Any:
    """Return E f′, and its derivatives by the mean and the variance."""
    _, _, reach, half_second, *_ = rectified_values_and_partials(mean, variance)
    table = _remainder_table(activation, single)
    zeroth, first, second, third = _wide(table, single, mean, variance)
    # moments of the remainder about the mean
    near = first - mean * zeroth
    spread = second - mean * (2 * first - mean * zeroth)
    skew = third - mean * (3 * second - mean * (3 * first - mean * zeroth))
    bend = 2 * half_second
    return (
        reach + near / variance,
        bend + (spread / variance - zeroth) / variance,
        (bend * -mean + (skew / variance - 3 * near) / variance) / (2 * variance),
    )


def _narrow_slopes(activation: Smooth, single: bool, mean: Array, variance: Array) -> Any:
    """Return E f′, and its derivatives by the mean and the variance."""
    xp, scale = namespace(mean), safe_scale(variance)
    weights, z, points = _hermite_points(single, mean, variance)
    start = activation.derivative(mean)
    weighted = weights * (activation.derivative(points) - start[..., None])
    bend, curve = xp.sum(weighted * z, axis=-1), xp.sum(weighted * (z * z - 1), axis=-1)
    # where f′ hardly varies, its differences are rounding
    rounding = 1e4 * float(xp.finfo(variance.dtype).eps)
    zero = xp.zeros_like(bend)
    return (
        start + xp.sum(weighted, axis=-1),
        xp.where(scale > rounding, bend / scale, zero),
        xp.where(variance > rounding, curve / (2 * scale * scale), zero),
    )


@functools.lru_cache(maxsize=256)
def _differentiable_gain(activation: Smooth, single: bool) -> Callable[..., Any]:
    limit = RULES[single].narrow

    @in_double
    @in_chunks
    def statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        small = _narrow_slopes(activation, single, mean, xp.clip(variance, max=limit))
        wide = _wide_slopes(activation, single, mean, xp.clip(variance, min=limit))
        pairs = zip(small, wide, strict=True)
        return tuple(xp.where(variance < limit, one, other) for one, other in pairs)

    return elementwise_of_statistics(statistics, 1)


@dataclass(frozen=True)
class Mish(SmoothRectifier):
    """The function x tanh(softplus(x))."""

    name = "mish"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * namespace(x).tanh(log_1p_exp(x))

    def derivative(self, x: Array) -> Array:
        """Return T + x S(x) (1 − T²) with T = tanh(softplus(x))."""
        gate = namespace(x).tanh(log_1p_exp(x))
        return gate + x * expit(x) * (1 - gate * gate)


@dataclass(frozen=True)
class Softsign(Smooth):
    """The function x / (1 + |x|)."""

    name = "softsign"
    bounds = (-1.0, 1.0)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x / (1 + namespace(x).abs(x))

    def derivative(self, x: Array) -> Array:
        """Return 1 / (1 + |x|)²."""
        return (1 + namespace(x).abs(x)) ** -2.0


@dataclass(frozen=True)
class Hardswish(Smooth):
    """The function x · clip(x + 3, 0, 6) / 6."""

    name = "hardswish"
    knots = (-3.0, 3.0)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * namespace(x).clip(x + 3, min=0.0, max=6.0) / 6

    def derivative(self, x: Array) -> Array:
        """Return (2x + 3) / 6 between −3 and 3; 0 below, 1 above."""
        xp = namespace(x)
        outside = xp.where(x > 0, xp.ones_like(x), xp.zeros_like(x))
        return xp.where(xp.abs(x) < 3, (2 * x + 3) / 6, outside)


@dataclass(frozen=True)
class Tanhshrink(Smooth):
    """The function x − tanh x."""

    name = "tanhshrink"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x - namespace(x).tanh(x)

    def derivative(self, x: Array) -> Array:
        """Return tanh² x."""
        return namespace(x).tanh(x) ** 2


@dataclass(frozen=True)
class Softplus(SmoothRectifier):
    """The function log(1 + eˣ)."""

    name = "softplus"
    series = 1.9, 26
    bounds = (0.0, float("inf"))
    open_ended = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return log_1p_exp(x)

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean, with the logistic function as a mixture of normal ones."""
        return expected_softplus(mean, variance)[0]

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the inverse log(eʸ − 1), and its derivative."""
        return inverse_at(
            level,
            self.bounds,
            lambda xp, y: y + xp.log(-xp.expm1(-y)),
            lambda xp, y: -1 / xp.expm1(-y),
        )

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients; in single precision by a mixture."""
        if not is_single_precision(mean):
            return super().hermite(mean, variance, order)
        gates = LOGISTIC.coefficients(mean, variance, order - 1)
        scale = safe_scale(variance)
        return [scale * gate / n**0.5 for n, gate in enumerate(gates, start=1)]

    def derivative(self, x: Array) -> Array:
        """Return the logistic function."""
        return expit(x)


@dataclass(frozen=True)
class SiLU(SmoothRectifier):
    """The function x S(x) with the logistic function S, also known as swish."""

    name = "silu"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x * expit(x)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients; in single precision by a mixture."""
        compute = LOGISTIC_GATE.hermite if is_single_precision(mean) else super().hermite
        return compute(mean, variance, order)

    def derivative(self, x: Array) -> Array:
        """Return S (1 + x (1 − S))."""
        gate = expit(x)
        return gate * (1 + x * expit(-x))
