"""The activation a f(bx) + c, by the formulas of f."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Activation, Array


@dataclass(frozen=True)
class Rescaled(Activation):
    """The function a f(bx) + c for an activation f."""

    activation: Activation  # f
    inner: float = 1.0  # b, not zero
    outer: float = 1.0  # a
    shift: float = 0.0  # c
    name: str = "rescaled"

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the knots of f in units of x."""
        return tuple(
            (knot[0] / self.inner, knot[1] / abs(self.inner))
            if isinstance(knot, tuple)
            else (knot / self.inner, 1 / abs(self.inner))
            for knot in self.activation.knots
        )

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Return the bounds of f, scaled and shifted."""
        low, high = sorted(self.outer * bound + self.shift for bound in self.activation.bounds)
        return low, high

    @property
    def open_ended(self) -> bool:  # type: ignore[override]
        """Return whether f never reaches its finite bounds."""
        return self.activation.open_ended

    @property
    def superlinear(self) -> bool:  # type: ignore[override]
        """Return whether f grows faster than linearly."""
        return self.activation.superlinear

    @property
    def appell(self) -> bool:  # type: ignore[override]
        """Return whether f has Appell's property and is rescaled by numbers."""
        numbers = all(isinstance(part, int | float) for part in (self.inner, self.outer))
        return numbers and self.activation.appell

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return where the function takes a value, in units of x, and |dx/d level| there."""
        preimages = self.activation.preimages((level - self.shift) / self.outer)
        factor = abs(self.inner * self.outer)
        return tuple((place / self.inner, stretch / factor) for place, stretch in preimages)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.outer * self.activation(self.inner * x) + self.shift

    def _scaled(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        return self.inner * mean, self.inner * self.inner * variance

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return mean and variance, as accurate as those of f."""
        centre, spread = self.activation.moments(*self._scaled(mean, variance))
        return self.outer * centre + self.shift, self.outer * self.outer * spread

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean, as accurate as that of f."""
        return self.outer * self.activation.expectation(*self._scaled(mean, variance)) + self.shift

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients; their sign alternates where b is negative."""
        sign = 1 if self.inner > 0 else -1
        terms = self.activation.hermite(*self._scaled(mean, variance), order)
        return [self.outer * sign**n * term for n, term in enumerate(terms, start=1)]

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative."""
        return self.outer * self.inner * self.activation.gain(*self._scaled(mean, variance))

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of every pair by the formula of f."""
        return self._pairs(self.activation.pair_covariance, mean, variance, covariance)

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the approximate covariance of every pair by the formula of f."""
        return self._pairs(self.activation.dvi_covariance, mean, variance, covariance)

    def _pairs(self, rule: Any, mean: Array, variance: Array, covariance: Array) -> Array:
        shares = rule(*self._scaled(mean, variance), self.inner * self.inner * covariance)
        return shares if shares is NotImplemented else self.outer * self.outer * shares
