"""Pairs of a f̂(b x) from those of f̂."""

from __future__ import annotations

from dataclasses import dataclass

from moment_calculus.functions.base import Array, Surrogate


@dataclass(frozen=True)
class RescaledSurrogate(Surrogate):
    """The function a f̂(b x).

    Args:
        surrogate: f̂.
        inner: b.
        outer: a.
    """

    surrogate: Surrogate
    inner: float
    outer: float

    @property
    def absolute(self) -> bool:  # type: ignore[override]
        """As of f̂."""
        return self.surrogate.absolute

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Hermite coefficients; their sign alternates where b is negative."""
        sign = 1 if self.inner > 0 else -1
        terms = self.surrogate.hermite(*self._scaled(mean, variance), order)
        return [self.outer * sign**n * term for n, term in enumerate(terms, start=1)]

    def features(self, mean: Array, variance: Array) -> tuple[Array, ...]:
        """Those of f̂ at b x."""
        return self.surrogate.features(*self._scaled(mean, variance))

    def pairs(self, first: tuple[Array, ...], second: tuple[Array, ...], rho: Array) -> Array:
        """Those of f̂; b x and b y have the correlation of x and y."""
        return self.outer * self.outer * self.surrogate.pairs(first, second, rho)

    def _scaled(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        return self.inner * mean, self.inner * self.inner * variance
