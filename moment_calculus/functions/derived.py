"""Functions by a rule that states some of their moments: what it leaves out follows from these."""

from __future__ import annotations

import functools
from typing import Any

from moment_calculus.functions.base import Activation, Delegating
from moment_calculus.numerics.arrays import Array, namespace, outer, safe_scale, shrunk
from moment_calculus.numerics.derivatives import transposed

_LIBRARY = __name__.partition(".")[0]
_NAMES = ("gain", "hermite", "pair_covariance", "cross_covariance", "expectation")


@functools.cache
def left_out(kind: type) -> tuple[str, ...]:
    """Return the methods that a class inherits from before the base that changed ``moments``."""
    line = kind.__mro__
    owner = lambda name: next((part for part in line if name in vars(part)), Activation)  # noqa: E731
    changed = owner("moments")
    if changed.__module__.partition(".")[0] == _LIBRARY and not issubclass(changed, Delegating):
        return ()  # the library's own functions are tested as a whole
    # the defaults of Activation call the other methods
    own = {Activation, *line[: line.index(changed) + 1]}
    return tuple(name for name in _NAMES if owner(name) not in own)


class Derived(Delegating):
    """A function whose rule changes the moments; its covariances are those of gains.

    The gain is the derivative of the rule's mean (Stein's lemma), no larger than its variance
    allows. Covariances of pairs are those of the linear parts: with the rule's own variances they
    are positive semi-definite.
    """

    def __init__(self, rule: Any, missing: tuple[str, ...]) -> None:
        super().__init__(rule)
        self.missing = missing

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the mean by the rule."""
        if "expectation" in self.missing:
            return self.moments(mean, variance)[0]
        return self.function.expectation(mean, variance)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the gain by the rule or its mean, no larger than its variance allows."""
        if "gain" in self.missing:
            ones = namespace(mean).ones_like(mean)
            gain = transposed(lambda point: self.expectation(point, variance), mean, ones)
        else:
            gain = self.function.gain(mean, variance)
        return gain * shrunk(self.moments(mean, variance)[1], gain * gain * variance)[0]

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients by the rule, or those of the linear part."""
        if "hermite" not in self.missing:
            return self.function.hermite(mean, variance, order)
        first = self.gain(mean, variance) * safe_scale(variance)
        return [first, *(0.0 * first for _ in range(order - 1))]

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the covariance of every pair by the rule, or by the gains."""
        if "pair_covariance" not in self.missing:
            return self.function.pair_covariance(mean, variance, covariance)
        gain = self.gain(mean, variance)
        return outer(gain, gain) * covariance
