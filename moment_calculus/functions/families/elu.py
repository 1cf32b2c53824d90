"""ELU in closed form; CELU and SELU are rescaled ELUs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Array, normal_hermite
from moment_calculus.functions.families.relu import LeakyReLU
from moment_calculus.functions.series.elu_narrow import narrow_statistics
from moment_calculus.functions.series.half_line import mills
from moment_calculus.functions.smooth import Smooth, in_double
from moment_calculus.numerics.choices import where_cheap
from moment_calculus.numerics.normal.bivariate import cdf, pdf, raw_tail_moments
from moment_calculus.numerics.special import (
    TINY_VARIANCE,
    elementwise,
    has_double,
    namespace,
    safe_scale,
)

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
    """Return the function of mean and variance to both moments, with explicit derivatives."""

    @in_double
    def values(mean: Array, variance: Array) -> tuple[Array, Array]:
        xp = namespace(mean)
        _, reach, first, square, fall, steep = _parts(mean, variance)
        raised = first + alpha * (reach + fall)  # E(f + α): f + α is positive, and squared below
        spread = square + alpha * (2 * first + alpha * (reach + steep)) - raised * raised
        # below this scale the square cancels, and the function is straight on either side
        # of 0
        slope = alpha * xp.exp(xp.clip(mean, max=0.0))
        straight = _leaky_variance(mean, variance, slope)
        narrow = variance < float(xp.finfo(mean.dtype).eps) ** (2 / 3)
        spread = xp.where(narrow, straight, xp.clip(spread, min=0.0))
        return raised - alpha, spread

    @in_double
    def slopes(mean: Array, variance: Array) -> tuple[Array, ...]:
        xp = namespace(mean)
        threshold, reach, first, _, fall, steep = _parts(mean, variance)
        gain, raised = reach + alpha * fall, first + alpha * (reach + fall)
        random = variance > TINY_VARIANCE
        density = xp.where(random, pdf(threshold) / safe_scale(variance), xp.zeros_like(mean))
        bend = (1 - alpha) * density + alpha * fall
        by_mean = 2 * (first + alpha * reach + alpha * alpha * steep - raised * gain)
        crossed = alpha * (1 - alpha) * density + alpha * alpha * steep - raised * bend
        return gain, bend / 2, by_mean, reach + alpha * alpha * steep + crossed

    def values_and_partials(mean: Array, variance: Array) -> tuple[Array, ...]:
        wide = (*values(mean, variance), *slopes(mean, variance))
        if has_double(mean):
            return wide
        xp = namespace(mean)
        narrow = variance < NARROW
        thin = narrow_statistics(alpha, mean, xp.where(narrow, variance, NARROW + 0 * variance))
        return tuple(xp.where(narrow, a, b) for a, b in zip(thin, wide, strict=True))

    def moments(mean: Array, variance: Array) -> Any:
        return (values if has_double(mean) else values_and_partials)(mean, variance)[:2]

    def partials(mean: Array, variance: Array) -> Any:
        partial_derivatives = (
            slopes(mean, variance) if has_double(mean) else values_and_partials(mean, variance)[2:]
        )
        return partial_derivatives[:2], partial_derivatives[2:]

    return elementwise(moments, partials)


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
        """Return E[f′ He_k(z)] / √k!, k < count, by recursion, or by quadrature if v is large."""

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
