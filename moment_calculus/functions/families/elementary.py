"""Elementary functions in closed form: exponentials, sine and cosine, integer powers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation, Array, Moments, Pairing, inverse_at
from moment_calculus.functions.integrated import in_double
from moment_calculus.numerics.arrays import (
    constants,
    namespace,
    outer,
    safe_scale,
    stop_gradient,
)
from moment_calculus.numerics.execution import known_all_false

# ----------------------------------------------------------------------------------------
# The exponential function, whose image of a Gaussian is log-normal


_has_cap: ContextVar[bool] = ContextVar("whether exponentials are capped", default=True)


@contextmanager
def overflowing() -> Iterator[None]:
    """Let exponentials overflow to infinity, so that a chain shows where it does so."""
    token = _has_cap.set(False)
    try:
        yield
    finally:
        _has_cap.reset(token)


def capped_exp(x: Array, share: float = 1.0) -> Array:
    """Return eˣ, capped at 1/3000 of the largest finite number (zero gradient there)."""
    xp = namespace(x)
    if not _has_cap.get():
        return xp.exp(x)
    limit = share * (math.log(xp.finfo(x.dtype).max) - 8.0)  # logarithm of the cap
    capped = x > limit
    if known_all_false(capped):
        return xp.exp(x)
    # where instead of clip: JAX's gradient of clip would multiply an infinity by zero
    return xp.exp(xp.where(capped, limit + xp.zeros_like(x), x))


def infinite_where_capped(mean: Array) -> Array:
    """Replace expected exponentials that :func:`capped_exp` capped by ±infinity."""
    xp = namespace(mean)
    limit = 0.99 * math.exp(math.log(xp.finfo(mean.dtype).max) - 8.0)
    capped = xp.abs(mean) > limit
    return (
        mean
        if known_all_false(capped)
        else xp.where(capped, xp.where(stop_gradient(mean) < 0, -math.inf, math.inf), mean)
    )


def split_expm1(x: Array) -> tuple[Array, Any]:
    """Split expm1(x) into e^p · g with p = max(x, 0) and |g| ≤ 1; return p and g."""
    xp = namespace(x)
    zero = xp.zeros_like(x)
    up, down = xp.where(x > 0, x, zero), xp.where(x > 0, zero, x)
    return up, xp.expm1(down) - xp.expm1(-up)


@dataclass(frozen=True)
class Exp(Activation):
    """The function eˣ; moments beyond the range of the dtype are capped at a finite value."""

    name = "exp"
    bounds = (0.0, math.inf)
    open_ended = True
    superlinear = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return capped_exp(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the logarithm, and its derivative."""
        return inverse_at(level, (0.0, math.inf), lambda xp, y: xp.log(y), lambda xp, y: 1 / y)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance, e^{μ+v/2} and e^{2μ+v}(e^v − 1)."""
        up, growth = split_expm1(variance)
        spread = capped_exp(2 * mean + variance + up) * growth
        return capped_exp(mean + variance / 2), spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative, which is the mean itself."""
        return capped_exp(mean + variance / 2)

    def hermite(self, mean: Array, variance: Array, order: int) -> Array:
        """Return g_n = e^{μ+v/2} σⁿ / √n!, capped so that products of two are finite."""
        exponent = mean + variance / 2
        step = namespace(mean).log(safe_scale(variance))
        numbers = [[n, math.lgamma(n + 1) / 2] for n in range(1, order + 1)]
        columns = np.reshape(np.transpose(numbers), (2, order, *(1,) * exponent.ndim))
        counts, halves = (constants(column, mean) for column in columns)
        return capped_exp(exponent + counts * step - halves, share=0.5)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair, m_i m_j (e^{C_ij} − 1)."""
        exponent = mean + variance / 2
        up, growth = split_expm1(covariance)
        return capped_exp(exponent[..., :, None] + exponent[..., None, :] + up) * growth


@dataclass(frozen=True)
class Expm1(Exp):
    """The function eˣ − 1, with a mean that is relatively accurate near zero."""

    name = "expm1"
    bounds = (-1.0, math.inf)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return capped_expm1(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return log(1 + y), and its derivative."""
        return super().preimages(level + 1)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        return capped_expm1(mean + variance / 2), super().moments(mean, variance)[1]


def capped_expm1(x: Array) -> Array:
    """Return eˣ − 1, capped where eˣ is."""
    xp = namespace(x)
    return xp.where(x < 1, xp.expm1(xp.clip(x, max=1.0)), capped_exp(x) - 1)


# ----------------------------------------------------------------------------------------
# Sine and cosine, by the Gaussian's characteristic function E e^{ix} = e^{iμ − v/2}


@dataclass(frozen=True)
class Sin(Activation):
    """The sine function."""

    name = "sin"
    bounds = (-1.0, 1.0)
    phase = 0  # quarter turns ahead of the sine

    def _turned(self, x: Array, quarters: int) -> Array:
        """Return the derivative of order ``quarters`` of the function."""
        xp, turn = namespace(x), (quarters + self.phase) % 4
        return (1 if turn < 2 else -1) * (xp.cos(x) if turn % 2 else xp.sin(x))

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self._turned(x, 0)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return e^{−v/2} sin μ, and ½ (1 − e^{−v})(1 − e^{−v} + 2 e^{−v} cos² μ), for the sine."""
        xp = namespace(mean)
        slope, lost = self._turned(mean, 1), -xp.expm1(-variance)
        damping = xp.exp(-variance / 2)
        spread = 0.5 * lost * (lost + 2 * damping * damping * slope * slope)
        return damping * self(mean), spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative, e^{−v/2} cos μ for the sine."""
        return namespace(mean).exp(-variance / 2) * self._turned(mean, 1)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return g_n = σⁿ e^{−v/2} sin⁽ⁿ⁾ μ / √n!."""
        xp = namespace(mean)
        step = xp.log(safe_scale(variance))
        return [
            xp.exp(n * step - variance / 2 - math.lgamma(n + 1) / 2) * self._turned(mean, n)
            for n in range(1, order + 1)
        ]

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair."""
        alone = mean, variance
        return self.cross_covariance(self, alone, alone, covariance, outer)

    def cross_covariance(
        self,
        other: Activation,
        first: Moments,
        second: Moments,
        covariance: Array,
        combine: Pairing,
    ) -> Array:
        """Return the exact covariance of two functions of sine and cosine.

        It is e^{−(v_x+v_y)/2} (f g (cosh C − 1) + f′ g′ sinh C), with f, g, f′ and g′ at
        the means.
        """
        if not isinstance(other, Sin):
            return NotImplemented
        xp, (x, spread), (y, wide) = namespace(covariance), first, second
        negative = covariance < 0
        size = xp.where(negative, -covariance, covariance)
        total = (combine(spread, xp.ones_like(wide)) + combine(xp.ones_like(spread), wide)) / 2
        # |C| is at most (v_x + v_y)/2: nothing overflows, and no difference cancels
        grown, lost = xp.exp(xp.clip(size - total, max=0.0)), -xp.expm1(-size)
        even, odd = grown * lost * lost / 2, -grown * xp.expm1(-2 * size) / 2
        odd = xp.where(negative, -odd, odd)
        slopes = combine(self._turned(x, 1), other._turned(y, 1))
        return combine(self(x), other(y)) * even + slopes * odd


@dataclass(frozen=True)
class Cos(Sin):
    """The cosine: the sine, a quarter turn ahead."""

    name = "cos"
    phase = 1


# ----------------------------------------------------------------------------------------
# Integer powers, whose Hermite expansion is finite and known in closed form


@dataclass(frozen=True)
class Power(Activation):
    """The power xⁿ for a natural number n ≥ 1; moments beyond the dtype's range are kept finite.

    E xᵐ = μ E xᵐ⁻¹ + (m − 1) v E xᵐ⁻², in which both terms have the same sign.
    """

    exponent: int = 2  # n
    name = "power"
    superlinear = True

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the bounds; even powers are not negative."""
        return (0.0 if self.exponent % 2 == 0 else -math.inf), math.inf

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return x**self.exponent

    def _coefficients(self, mean: Array, variance: Array) -> list[Array]:
        """Return g_k / σᵏ = √k! C(n, k) E xⁿ⁻ᵏ for k = 0 … n."""
        raw = [namespace(mean).ones_like(mean), mean]
        for m in range(2, self.exponent + 1):
            raw.append(mean * raw[-1] + (m - 1) * variance * raw[-2])
        return [
            math.sqrt(math.factorial(k)) * math.comb(self.exponent, k) * raw[self.exponent - k]
            for k in range(self.exponent + 1)
        ]

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance, Σ g_k²."""
        return in_double(self._moments)(mean, variance)

    def _moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        first, *others = self._coefficients(mean, variance)
        total: Any = 0.0
        for term in reversed(others):  # no square root: its gradient is infinite at zero
            total = variance * (term * term + total)
        return first, total

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return in_double(lambda m, v: self._coefficients(m, v)[1:2])(mean, variance)[0]

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients, of which those beyond n are zero."""
        return list(in_double(lambda m, v: self._hermite(m, v, order))(mean, variance))

    def _hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        xp = namespace(mean)
        scale = safe_scale(variance)
        terms = self._coefficients(mean, variance)[1 : order + 1]
        coefficients = [scale**k * term for k, term in enumerate(terms, start=1)]
        return coefficients + [xp.zeros_like(mean)] * (order - len(coefficients))

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariances Σ C_ijᵏ (g_k/σᵏ)(x_i) (g_k/σᵏ)(x_j)."""
        return in_double(self._pairs)(mean, variance, covariance)[0]

    def _pairs(self, mean: Array, variance: Array, covariance: Array) -> tuple[Array]:
        total: Any = 0.0
        for term in reversed(self._coefficients(mean, variance)[1:]):
            total = covariance * (total + term[..., :, None] * term[..., None, :])
        return (total,)
