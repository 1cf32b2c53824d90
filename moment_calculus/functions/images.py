"""Functions as images a g(b (x − c)) + d of others, by which a rule book has a rule for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from moment_calculus.functions.base import Activation, Delegating
from moment_calculus.functions.recognition import corner_at_zero
from moment_calculus.functions.table import LeakyReLU, PiecewiseLinear, ReLU, Rescaled
from moment_calculus.numerics.arrays import Array


class Moved(Delegating):
    """The function g(x − c)."""

    def __init__(self, function: Any, location: float) -> None:
        super().__init__(function)
        self.location = location

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """Return the knots of g, moved."""
        return tuple(
            (knot[0] + self.location, knot[1]) if isinstance(knot, tuple) else knot + self.location
            for knot in self.function.knots
        )

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self.function(x - self.location)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the mean and the variance of g at the distance from c."""
        return self.function.moments(mean - self.location, variance)

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean of g at the distance from c."""
        return self.function.expectation(mean - self.location, variance)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients of g at the distance from c."""
        return self.function.hermite(mean - self.location, variance, order)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative of g at the distance from c."""
        return self.function.gain(mean - self.location, variance)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of every pair by g at the distances from c."""
        return self.function.pair_covariance(mean - self.location, variance, covariance)

    def dvi_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the approximate covariance of every pair by g at the distances from c."""
        return self.function.dvi_covariance(mean - self.location, variance, covariance)


def image_parts(function: Any) -> tuple[Activation, Callable[[Any], Any]] | None:
    """Return g, and the function made of g or of a rule for it; None if it is no image."""
    if isinstance(function, Rescaled):
        return function.activation, lambda inner: replace(function, activation=inner)
    if type(function) is LeakyReLU and function == LeakyReLU(0.0):
        return ReLU(), lambda inner: inner
    if not isinstance(function, PiecewiseLinear) or len(function.knots) != 1:
        return None
    (location,), jump = function.knots, sum(function.jumps)
    corner = corner_at_zero(jump, function.slopes, function.origin)
    if corner is None or corner == function:
        return None
    return corner, lambda inner: Moved(inner, location) if location else inner
