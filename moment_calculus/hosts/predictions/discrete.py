"""Predictive distributions of counts and classes, for each element of a site."""

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
    sum_over_counts,
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
    """Predictive distribution of counts with known probabilities."""

    log_prob: Callable[[Array], Array]  # log predictive probabilities of counts
    expected_surprisal: Callable[[Array], Array]  # E_q[−p log p] of counts
    bounds: tuple[Any, Any] = (0, math.inf)  # smallest and largest count
    success: Callable[[], Array] | None = None  # predictive probability of a success
    random_parameters: int = (
        0  # number of random parameters; with more than two a sum takes a minute
    )

    def probs(self, mean: Array) -> Array:
        """Return the predictive probability of a success in one trial."""
        return self.success() if self.success is not None else super().probs(mean)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles by summation of the probabilities."""
        xp = namespace(moments.mean)
        levels, mean, variance = xp.broadcast_arrays(levels, moments.mean, moments.variance)
        return count_quantile(
            lambda counts: self._log(counts)[0], levels, mean, variance, self.bounds
        )

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) by summation of the probabilities."""
        value, _ = namespace(moments.mean).broadcast_arrays(value, moments.mean)
        return count_cumulative(lambda counts: self._log(counts)[0], value, self.bounds)

    def _log(self, counts: Array) -> tuple[Array, Array]:
        """Return the predictive probabilities p of counts, and −p log p."""
        log_p = self.log_prob(counts)
        return namespace(log_p).exp(log_p), surprisal_of_log(log_p)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy by summation over the counts."""
        return sum_over_counts(self._log, moments.mean, moments.variance, self.bounds)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the mutual information by summation of −p log p minus its expectation."""

        def terms(counts: Array) -> tuple[Array, Array]:
            probability, surprisal = self._log(counts)
            return probability, surprisal - self.expected_surprisal(counts)

        result = sum_over_counts(terms, moments.mean, moments.variance, self.bounds)
        return positive_part(result)


@dataclass(frozen=True)
class BinaryMarginal(CountMarginal):
    """Predictive distribution of zeros and ones; the mean is the probability of a one."""

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) in closed form."""
        xp = namespace(moments.mean)
        value, zero = xp.broadcast_arrays(value, 1 - moments.mean)
        result = xp.where(value < 0, 0.0, xp.where(value < 1, zero, 1.0))
        return xp.where(xp.isnan(value), math.nan, result)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in closed form."""
        return binary_entropy(moments.mean)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the mutual information by a sum over zero and one."""
        mean = moments.mean
        given = sum(self.expected_surprisal(mean * 0 + value) for value in (0.0, 1.0))
        return positive_part(binary_entropy(mean) - given)

    def variation_ratio(self, mean: Array) -> Array:
        """Return the smaller of the two probabilities."""
        return namespace(mean).minimum(mean, 1 - mean)


@dataclass(frozen=True)
class ClassMarginal(Marginal):
    """Predictive distribution of classes; the mean [..., classes] holds their probabilities."""

    # The mutual information, where it is not the entropy of the mean minus the expected
    # entropy.
    information: Callable[[], Array] | None = None
    ordered: bool = False  # whether the classes have an order

    def probs(self, mean: Array) -> Array:
        """Return the mean of the one-hot outcome."""
        return mean

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles by summation of the probabilities, if the classes have an order."""
        if not self.ordered:
            raise wording.no_quantiles(self.name, self.family, classes=True)
        return class_quantile(moments.mean, levels[..., 0])

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) by summation of the probabilities, if the classes have an order."""
        if not self.ordered:
            raise wording.no_distribution_function(self.name, self.family, classes=True)
        return class_cumulative(moments.mean, value)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in closed form."""
        return class_entropy(moments.mean)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return ``information()`` if it is given, otherwise the difference of entropies."""
        if self.information is not None:
            return positive_part(self.information())
        return super().mutual_information(moments)

    def expected_conditional_entropy(self, moments: PredictiveMoments) -> Array:
        """Return the expected entropy [...], without the mean's axis of classes."""
        given = self.expected_entropy
        return super().expected_conditional_entropy(moments) if given is None else given()

    def variation_ratio(self, mean: Array) -> Array:
        """Return the probability of all classes but the likeliest."""
        return 1 - namespace(mean).max(mean, axis=-1)
