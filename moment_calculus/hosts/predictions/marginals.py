"""Predictive distributions of single elements, by what is known of them: quantiles, classes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.hosts.predictions.wording import no_class_probabilities, no_quantiles
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quantiles import (
    class_quantile,
    count_quantile,
    inverse,
    normal_quantile,
)
from moment_calculus.numerics.special import namespace


@dataclass(frozen=True)
class Marginal:
    """The predictive distribution of every element of a site, of which nothing more is known.

    Args:
        name: the site.
        family: name of its distribution.
    """

    name: str
    family: str

    def probs(self, mean: Array) -> Array:
        """Predictive probabilities of the classes, or of a success.

        Args:
            mean: predictive mean.

        Raises:
            UnsupportedMoments: if the distribution has none.
        """
        raise no_class_probabilities(self.name, self.family)

    def quantile(self, levels: Array, mean: Array, variance: Array) -> Array:
        """Quantiles of every element.

        Args:
            levels: between 0 and 1, broadcastable to the mean, in double precision.
            mean: predictive mean, likewise.
            variance: predictive variance, likewise.

        Raises:
            UnsupportedMoments: if the predictive distribution function is not known.
        """
        raise no_quantiles(self.name, self.family)


@dataclass(frozen=True)
class NormalMarginal(Marginal):
    """A Normal, which has the predictive mean and variance."""

    def quantile(self, levels: Array, mean: Array, variance: Array) -> Array:
        """In closed form."""
        return normal_quantile(mean, variance, levels)


@dataclass(frozen=True)
class ContinuousMarginal(Marginal):
    """A continuous distribution whose predictive distribution function is known.

    Args:
        cumulative: from values to probabilities.
        bounds: numbers or arrays between which all values are.
    """

    cumulative: Callable[[Array], Array]
    bounds: tuple[Any, Any] = (-math.inf, math.inf)

    def quantile(self, levels: Array, mean: Array, variance: Array) -> Array:
        """By inversion of the distribution function."""
        levels, centre, width = namespace(mean).broadcast_arrays(levels, mean, variance**0.5)
        try:
            return inverse(self.cumulative, levels, centre, width, self.bounds)
        except NotImplementedError:
            raise no_quantiles(self.name, self.family) from None


@dataclass(frozen=True)
class CountMarginal(Marginal):
    """Counts, whose predictive probabilities are known.

    Args:
        log_prob: from counts to the logarithms of their predictive probabilities.
        bounds: numbers or arrays: the smallest and the largest of them.
        success: predictive probability of a success, where the counts are of successes.
    """

    log_prob: Callable[[Array], Array]
    bounds: tuple[Any, Any] = (0, math.inf)
    success: Callable[[], Array] | None = None

    def probs(self, mean: Array) -> Array:
        """The probability of a success in one trial."""
        return self.success() if self.success is not None else super().probs(mean)

    def quantile(self, levels: Array, mean: Array, variance: Array) -> Array:
        """By summation of the probabilities."""
        xp = namespace(mean)
        levels, mean, variance = xp.broadcast_arrays(levels, mean, variance)
        return count_quantile(
            lambda counts: xp.exp(self.log_prob(counts)), levels, mean, variance, self.bounds
        )


@dataclass(frozen=True)
class ClassMarginal(Marginal):
    """Classes; the mean holds their probabilities.

    Args:
        ordered: whether the order of the classes means anything.
    """

    ordered: bool = False

    def probs(self, mean: Array) -> Array:
        """The mean of the one-hot outcome."""
        return mean

    def quantile(self, levels: Array, mean: Array, variance: Array) -> Array:
        """By summation of the probabilities, if the classes have an order."""
        if not self.ordered:
            raise no_quantiles(self.name, self.family, classes=True)
        return class_quantile(mean, levels[..., 0])
