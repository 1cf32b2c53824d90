"""Predictive distributions of counts and classes, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.hosts.predictions import wording
from moment_calculus.hosts.predictions.marginals import Marginal, PredictiveMoments
from moment_calculus.numerics.arrays import Array, positive_part
from moment_calculus.numerics.entropies import (
    binary_entropy,
    class_entropy,
    count_total,
    surprisal_of_log,
)
from moment_calculus.numerics.quantiles import (
    class_cumulative,
    class_quantile,
    count_cumulative,
    count_quantile,
)
from moment_calculus.numerics.special import namespace


@dataclass(frozen=True)
class CountMarginal(Marginal):
    """Counts, whose predictive probabilities are known.

    Args:
        log_prob: from counts to the logarithms of their predictive probabilities.
        expected_surprisal: from counts to E_q[−p log p] of their probability p given the
            parameters.
        bounds: numbers or arrays: the smallest and the largest of them.
        success: predictive probability of a success, where the counts are of successes.
        random: how many of the parameters are random; over two, a sum takes a minute.
    """

    log_prob: Callable[[Array], Array]
    expected_surprisal: Callable[[Array], Array]
    bounds: tuple[Any, Any] = (0, math.inf)
    success: Callable[[], Array] | None = None
    random: int = 0

    def probs(self, mean: Array) -> Array:
        """The probability of a success in one trial."""
        return self.success() if self.success is not None else super().probs(mean)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """By summation of the probabilities."""
        xp = namespace(moments.mean)
        levels, mean, variance = xp.broadcast_arrays(levels, moments.mean, moments.variance)
        return count_quantile(
            lambda counts: self._log(counts)[0], levels, mean, variance, self.bounds
        )

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """By summation of the probabilities."""
        value, _ = namespace(moments.mean).broadcast_arrays(value, moments.mean)
        return count_cumulative(lambda counts: self._log(counts)[0], value, self.bounds)

    def _log(self, counts: Array) -> tuple[Array, Array]:
        """Predictive probabilities, and −p log p of them."""
        log_p = self.log_prob(counts)
        return namespace(log_p).exp(log_p), surprisal_of_log(log_p)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """By summation."""
        return count_total(self._log, moments.mean, moments.variance, self.bounds)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """By summation, of the difference."""

        def terms(counts: Array) -> tuple[Array, Array]:
            probability, surprisal = self._log(counts)
            return probability, surprisal - self.expected_surprisal(counts)

        found = count_total(terms, moments.mean, moments.variance, self.bounds)
        return positive_part(found)


@dataclass(frozen=True)
class BinaryMarginal(CountMarginal):
    """Zeros and ones; the mean is the probability of a one."""

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """In closed form."""
        xp = namespace(moments.mean)
        value, zero = xp.broadcast_arrays(value, 1 - moments.mean)
        found = xp.where(value < 0, 0.0, xp.where(value < 1, zero, 1.0))
        return xp.where(xp.isnan(value), math.nan, found)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """In closed form."""
        return binary_entropy(moments.mean)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """From the probabilities of both."""
        mean = moments.mean
        given = sum(self.expected_surprisal(mean * 0 + value) for value in (0.0, 1.0))
        return positive_part(binary_entropy(mean) - given)

    def variation_ratio(self, mean: Array) -> Array:
        """The smaller of the two probabilities."""
        return namespace(mean).minimum(mean, 1 - mean)


@dataclass(frozen=True)
class ClassMarginal(Marginal):
    """Classes; the mean holds their probabilities.

    Args:
        information: gives the mutual information, where it is not the entropy of the mean minus
            the expected one.
        ordered: whether the order of the classes means anything.
    """

    information: Callable[[], Array] | None = None
    ordered: bool = False

    def probs(self, mean: Array) -> Array:
        """The mean of the one-hot outcome."""
        return mean

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """By summation of the probabilities, if the classes have an order."""
        if not self.ordered:
            raise wording.no_quantiles(self.name, self.family, classes=True)
        return class_quantile(moments.mean, levels[..., 0])

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """By summation of the probabilities, if the classes have an order."""
        if not self.ordered:
            raise wording.no_distribution_function(self.name, self.family, classes=True)
        return class_cumulative(moments.mean, value)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """In closed form."""
        return class_entropy(moments.mean)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """As it was given."""
        if self.information is not None:
            return positive_part(self.information())
        return super().mutual_information(moments)

    def given_parameters(self, moments: PredictiveMoments) -> Array:
        """As it was given."""
        given = self.expected_entropy
        return super().given_parameters(moments) if given is None else given()

    def variation_ratio(self, mean: Array) -> Array:
        """The probability of all classes but the likeliest."""
        return 1 - namespace(mean).max(mean, axis=-1)
