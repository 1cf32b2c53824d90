"""Sine and cosine, by the Gaussian's characteristic function E e^{ix} = e^{iμ − v/2}."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.functions.base import Activation, Array, Moments, Pairing
from moment_calculus.numerics.arrays import outer
from moment_calculus.numerics.special import namespace, safe_scale


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
