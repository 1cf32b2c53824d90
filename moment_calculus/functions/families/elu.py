"""ELU in closed form; CELU and SELU are rescaled ELUs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.functions.base import Array, normal_hermite
from moment_calculus.functions.families.logistic import mills
from moment_calculus.functions.families.relu import LeakyReLU
from moment_calculus.functions.integrated import Smooth, in_double
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    constants,
    has_double,
    namespace,
    safe_scale,
)
from moment_calculus.numerics.derivatives import elementwise_of_statistics
from moment_calculus.numerics.execution import where_cheap
from moment_calculus.numerics.normal import cdf, pdf, raw_tail_moments
from moment_calculus.numerics.quadrature import unit_legendre

# ----------------------------------------------------------------------------------------
# Gaussians with σ ≤ 1 in single precision. The closed form would cancel: its terms have the size of
# α², the variance that of σ². Differences from f(μ) do not cancel: above 0, where f is a line,
# truncated moments give their expectations, and below it Gauss–Legendre nodes.


REACH, NODES = 6.0, 20  # z < −REACH, 2e-8 of an expectation, is left out


def _nodes_below(threshold: Array) -> tuple[Array, Array]:
    """Return steps z < −μ/σ and their weights, on a new trailing axis."""
    xp = namespace(threshold)
    rule = constants(np.transpose(unit_legendre(NODES)), threshold)
    shares, weights = rule[0, :], rule[1, :] / math.sqrt(2 * math.pi)
    length = (REACH - xp.clip(threshold, min=-REACH, max=REACH))[..., None]
    z = length * shares - REACH
    return z, length * weights * xp.exp(z * z * -0.5)


def narrow_statistics(alpha: float, mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return mean, variance, and their derivatives by μ and by v, for variances up to 1."""
    # Relative errors in single precision (measured for |μ/σ| ≤ 8, σ from 1e-3 to 1): 5e-7
    # of the moments and 2e-6 of the derivatives.
    xp = namespace(mean)
    scale, low, left = safe_scale(variance), xp.clip(mean, max=0.0), mean <= 0
    threshold = mean / scale
    z, weights = _nodes_below(threshold)
    mass, density = cdf(threshold), pdf(threshold)  # E[1; x > 0] and E[z; x > 0]
    # f − f(μ) and f′ − f′(μ) below 0; above it f − f(μ) = σz + gap, and f′ − f′(μ) is a
    # jump
    sink, start = alpha * xp.expm1(low), xp.where(left, alpha * xp.exp(low), xp.ones_like(mean))
    step = xp.expm1(scale[..., None] * z)
    beyond = xp.expm1(xp.clip(mean[..., None] + scale[..., None] * z, max=0.0))
    fall, side = (start[..., None] * step, left[..., None])
    difference = xp.where(side, fall, alpha * beyond - mean[..., None])
    turn = xp.where(side, fall, alpha * (1 + beyond) - 1)
    jump = xp.where(left, (1 - alpha) - sink, xp.zeros_like(mean))
    shift = xp.sum(weights * difference, axis=-1)
    gap = xp.where(left, mean - sink, xp.zeros_like(mean))
    shift = shift + scale * density + gap * mass
    rest = gap - shift
    centred = weights * (difference - shift[..., None])
    first = scale * density + rest * mass  # E[f − E f; x > 0]; the next has the factor z
    second = scale * (mass - threshold * density) + rest * density
    spread = (
        xp.sum(centred * (difference - shift[..., None]), axis=-1) + scale * second + rest * first
    )
    bend = xp.sum(weights * z * turn, axis=-1) + jump * density
    slant = xp.sum(centred * z * (start[..., None] + turn), axis=-1) + (start + jump) * second
    random, inverse = variance > TINY_VARIANCE, 1 / scale
    return (
        xp.where(left, sink, mean) + shift,
        xp.clip(spread, min=0.0),
        start + xp.sum(weights * turn, axis=-1) + jump * mass,
        xp.where(random, bend * inverse / 2, alpha * xp.exp(low) / 2),
        2 * (xp.sum(centred * turn, axis=-1) + jump * first),
        xp.where(random, slant * inverse, start * start),
    )


# ----------------------------------------------------------------------------------------
# The closed form


NARROW = 1.0  # variance below which the closed form cancels in single precision
RECURSIVE = 16.0  # variance up to which the recursion for coefficients keeps twelve digits


def _falling(mean: Array, scale: Array, rate: int) -> Array:
    """Return E[e^{kx}; x < 0] for k = ``rate``, without overflow."""
    xp = namespace(mean)
    threshold, step = mean / scale, rate * scale
    low = threshold + step
    zero = xp.zeros_like(low)
    exponent = xp.where(low > 0, zero, step * (threshold + step / 2))
    inner = pdf(threshold) * mills(xp.where(low > 0, low, zero))
    return xp.where(low > 0, inner, xp.exp(exponent) * cdf(-low))


def _parts(mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return a = μ/σ, Φ(a), E x₊, E x₊², E[e^x; x < 0] and E[e^{2x}; x < 0]."""
    xp = namespace(mean)
    scale = safe_scale(variance)
    threshold = mean / scale
    reach = cdf(threshold)
    _, first, second = raw_tail_moments(xp.abs(threshold))
    above = threshold > 0
    rectified = scale * first + xp.where(above, mean, xp.zeros_like(mean))
    square = xp.where(above, mean * mean + variance * (1 - second), variance * second)
    falls = (_falling(mean, scale, rate) for rate in (1, 2))
    return threshold, reach, rectified, square, *falls


@functools.lru_cache(maxsize=256)
def _differentiable_moments(alpha: float) -> Callable[..., Any]:
    """Return the differentiable function of mean and variance to both moments."""

    @in_double
    def closed(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        threshold, reach, first, square, fall, steep = _parts(mean, variance)
        raised = first + alpha * (reach + fall)  # E(f + α): f + α is positive, and squared below
        spread = square + alpha * (2 * first + alpha * (reach + steep)) - raised * raised
        # below this scale the square cancels; the function is straight on either side of 0
        slope = alpha * xp.exp(xp.clip(mean, max=0.0))
        straight = _leaky_variance(mean, variance, slope)
        narrow = variance < float(xp.finfo(mean.dtype).eps) ** (2 / 3)
        gain = reach + alpha * fall
        random = variance > TINY_VARIANCE
        density = xp.where(random, pdf(threshold) / safe_scale(variance), xp.zeros_like(mean))
        bend = (1 - alpha) * density + alpha * fall
        crossed = alpha * (1 - alpha) * density + alpha * alpha * steep - raised * bend
        return (
            raised - alpha,
            xp.where(narrow, straight, xp.clip(spread, min=0.0)),
            gain,
            bend / 2,
            2 * (first + alpha * reach + alpha * alpha * steep - raised * gain),
            reach + alpha * alpha * steep + crossed,
        )

    def statistics(mean: Array, variance: Array) -> tuple[Array, ...]:
        wide = closed(mean, variance)
        if has_double(mean):
            return wide
        xp = namespace(mean)
        narrow = variance < NARROW
        thin = narrow_statistics(alpha, mean, xp.where(narrow, variance, NARROW + 0 * variance))
        return tuple(xp.where(narrow, a, b) for a, b in zip(thin, wide, strict=True))

    return elementwise_of_statistics(statistics, 2)


def _leaky_variance(mean: Array, variance: Array, slope: Array) -> Array:
    return LeakyReLU(slope).moments(mean, variance)[1]


@dataclass(frozen=True)
class ELU(Smooth):
    """The function x for x > 0, else α (eˣ − 1).

    Source: truncated log-normal moments.
    """

    alpha: float = 1.0  # α
    name = "elu"

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the bounds: the lower one is −α, or 0 for a negative α."""
        return min(-self.alpha, 0.0), float("inf")

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        xp = namespace(x)
        return xp.where(x > 0, x, self.alpha * xp.expm1(xp.clip(x, max=0.0)))

    def derivative(self, x: Array) -> Array:
        """Return 1 for x > 0, else α eˣ."""
        xp = namespace(x)
        return xp.where(x > 0, xp.ones_like(x), self.alpha * xp.exp(xp.clip(x, max=0.0)))

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance in closed form."""
        return _differentiable_moments(self.alpha)(mean, variance)

    def slope_coefficients(self, mean: Array, variance: Array, count: int) -> list[Array]:
        """Return E[f′ He_k(z)] / √k!, k < count, by recursion; by quadrature for large v."""

        def recursive(mean: Array, variance: Array) -> tuple[Array, ...]:
            return self._slope_coefficients(mean, variance, count)

        def general(mean: Array, variance: Array) -> tuple[Array, ...]:
            return tuple(Smooth.slope_coefficients(self, mean, variance, count))

        if not has_double(mean):
            return list(general(mean, variance))
        return list(where_cheap(variance < RECURSIVE, recursive, general, mean, variance))

    def _slope_coefficients(self, mean: Array, variance: Array, count: int) -> tuple[Array, ...]:
        """Return the coefficients from those of the step and of eˣ 1{x < 0}, by recursion.

        J_k = E[eˣ He_k(z); x < 0]/√k! is (σ J_{k−1} − He_{k−1}(−a) φ(a)/√(k−1)!)/√k.
        """
        scale = safe_scale(variance)
        threshold = mean / scale
        edges = normal_hermite(-threshold, pdf(threshold), count - 1)
        reach, fall = cdf(threshold), _falling(mean, scale, 1)
        coefficients = [reach + self.alpha * fall]
        for k in range(1, count):
            step = edges[k - 1] / k**0.5
            fall = scale * fall / k**0.5 - step
            coefficients.append(step + self.alpha * fall)
        return tuple(coefficients)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative Φ(a) + α E[eˣ; x < 0] with a = μ/σ."""
        return in_double(self._gain)(mean, variance)[0]

    def _gain(self, mean: Array, variance: Array) -> tuple[Array]:
        scale = safe_scale(variance)
        return (cdf(mean / scale) + self.alpha * _falling(mean, scale, 1),)
