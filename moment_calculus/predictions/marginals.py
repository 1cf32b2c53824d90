"""Predictive distributions of the elements of a site: quantiles, entropies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import (
    Array,
    constants,
    namespace,
    ndtr,
    ndtri,
    positive_part,
    safe_scale,
)
from moment_calculus.numerics.derivatives import may_read
from moment_calculus.numerics.distributions import (
    binary_entropy,
    class_cumulative,
    class_entropy,
    class_quantile,
    count_cumulative,
    count_quantile,
    density_entropy,
    entropy_term_from_log,
    invert_increasing,
    is_level,
    normal_quantile,
    sum_over_counts,
)
from moment_calculus.numerics.execution import by_numpy
from moment_calculus.numerics.quadrature import adaptive_integral

FIRST_BRACKET, NEXT_BRACKET = 0.3, 1e-3  # standard deviations from where a quantile is expected
LOG_2PI_E = math.log(2 * math.pi * math.e)
# Quadratures of a density have panels between the quantiles at these levels.
TAILS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3)
BODY = (0.01, 0.03, 0.07, 0.13, 0.2, 0.3, 0.4, 0.5)
LEVEL_ERROR = 0.15  # allowed relative error of a level
SMALLEST_LEVEL = 1e-6  # in float32


class PredictiveMoments(NamedTuple):
    """Predictive mean and variances of a site, three arrays of one shape."""

    mean: Array  # of classes, their probabilities
    epistemic: Array  # variance from not knowing the weights
    aleatoric: Array  # variance of the noise

    @property
    def variance(self) -> Array:
        """Return epistemic plus aleatoric variance."""
        return self.epistemic + self.aleatoric


@dataclass(frozen=True)
class Marginal:
    """The predictive distribution of each element of a site; only moments are known."""

    name: str
    family: str  # name of the class of its distribution
    bounds = (-math.inf, math.inf)  # numbers or arrays between which all values are

    # E_q of the entropy of an observation given its parameters.
    expected_entropy: Callable[[], Array] | None = field(default=None, kw_only=True)
    # From levels [levels] to quantiles [levels, ...] under q of E[y | parameters].
    mean_quantile: Callable[[np.ndarray], Array] | None = field(default=None, kw_only=True)

    def probs(self, mean: Array) -> Array:
        """Return predictive probabilities of the classes, or of a success."""
        raise UnsupportedMoments(
            f"site '{self.name}': a {self.family} has no classes with probabilities",
            remedy="probs are those of Bernoulli, Binomial, Categorical and OrderedLogistic "
            "sites; use log_prob for the probability of a count, or the density of a value",
        )

    def log_density(self, function: Callable[[Array], Array], value: Array) -> Array:
        """Return log predictive densities by a function with integrals."""
        return adaptive_integral(lambda: function(value), 1e-6)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles of each element, at levels that broadcast to the mean."""
        raise no_quantiles(self.name, self.family)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) of each element; the value broadcasts to an observation."""
        raise no_distribution_function(self.name, self.family)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in nats, of the mean's shape without an axis of classes."""
        raise no_entropy(self.name, self.family)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the entropy minus its expectation given the parameters, ≥ 0."""
        entropy = self.entropy(moments)
        return positive_part(entropy - self.expected_conditional_entropy(moments))

    def expected_conditional_entropy(self, moments: PredictiveMoments) -> Array:
        """Return E_q of the entropy given the parameters, shaped as :meth:`entropy`."""
        if self.expected_entropy is None:
            raise no_entropy_given(self.name, self.family)
        return namespace(moments.mean).zeros_like(moments.mean) + self.expected_entropy()

    def variation_ratio(self, mean: Array) -> Array:
        """Return the probability of another class than the likeliest."""
        raise UnsupportedMoments(
            f"site '{self.name}': a {self.family} has no classes, and so no variation ratio",
            remedy="it is that of Bernoulli, Categorical and OrderedLogistic sites; use entropy "
            "or variance",
        )

    def credible_quantiles(self, levels: np.ndarray, moments: PredictiveMoments) -> Array:
        """Return quantiles [levels, ...] of E[y | parameters]."""
        if self.mean_quantile is None:
            raise UnsupportedMoments(
                f"site '{self.name}': no credible interval of the mean of a {self.family}: how it "
                "depends on the latent sites is not known",
                remedy="use epistemic_variance, or the interval of the observation",
            )
        xp, mean = namespace(moments.mean), moments.mean
        result = self.mean_quantile(levels) + xp.zeros_like(mean)
        return xp.where(xp.isnan(mean), math.nan, result)


@dataclass(frozen=True)
class NormalMarginal(Marginal):
    """A Normal predictive distribution."""

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles in closed form."""
        return normal_quantile(moments.mean, moments.variance, levels)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) in closed form; a step where the variance is zero."""
        xp, mean = namespace(moments.mean), moments.mean
        step = xp.astype(value >= mean, mean.dtype)
        below = ndtr((value - mean) / safe_scale(moments.variance))
        return xp.where((moments.variance == 0) & ~xp.isnan(value), step, below)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in closed form."""
        return 0.5 * (LOG_2PI_E + namespace(moments.mean).log(moments.variance))

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return ½ log(1 + epistemic / aleatoric)."""
        xp, certain = namespace(moments.mean), moments.epistemic == 0
        ratio = moments.epistemic / xp.where(certain, 1.0, moments.aleatoric)
        return 0.5 * xp.log1p(ratio)

    def credible_quantiles(self, levels: np.ndarray, moments: PredictiveMoments) -> Array:
        """Return quantiles [levels, ...] of the Gaussian E[y | parameters]."""
        broadcast = levels.reshape((-1,) + (1,) * len(moments.mean.shape))
        return normal_quantile(moments.mean, moments.epistemic, constants(broadcast, moments.mean))


@dataclass(frozen=True)
class VectorMarginal(NormalMarginal):
    """The dependent components of a multivariate Normal predictive distribution."""

    covariances: Callable[[], tuple[Array, Array]]  # predictive, and of the noise

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the joint entropy of all components in closed form."""
        size = moments.mean.shape[-1]
        return 0.5 * (size * LOG_2PI_E + _log_determinant(self.covariances()[0]))

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the mutual information of all components together in closed form."""
        total, noise = map(_log_determinant, self.covariances())
        return positive_part(0.5 * (total - noise))


def _log_determinant(covariance: Array) -> Array:
    return namespace(covariance).linalg.slogdet(covariance)[1]


@dataclass(frozen=True)
class ContinuousMarginal(Marginal):
    """A continuous distribution whose predictive distribution function is known."""

    cumulative: Callable[[Array], Array]  # P(y ≤ value) of values
    log_prob: Callable[[Array], Array]  # log predictive densities of values
    bounds: tuple[Any, Any] = (-math.inf, math.inf)  # numbers or arrays around all values

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles by inversion of the distribution function."""
        starts: list[Array] = []  # quantiles by the rules of fewer points

        def refined_quantiles() -> Array:
            start = starts[-1] if starts else None
            if start is None or not self._are_quantiles(start, levels):
                starts.append(self._inverse(levels, moments, start=start))
            return starts[-1]

        return adaptive_integral(refined_quantiles, 1e-8, relative=True)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return the distribution function, zero or one beyond the bounds."""
        xp = namespace(moments.mean)
        value, _ = xp.broadcast_arrays(value, moments.mean)
        low, high = (bound + xp.zeros_like(value) for bound in self.bounds)
        inside = xp.where(xp.isfinite(value), value, 0.0)
        try:
            inside = xp.minimum(xp.maximum(inside, low), high)
            result = adaptive_integral(lambda: self.cumulative(inside), 1e-9)
        except NotImplementedError:
            raise no_distribution_function(self.name, self.family) from None
        below = (value < low) | (value == -math.inf)  # the bound itself may have an atom
        result = xp.where(below, 0.0, xp.where(value >= high, 1.0, result))
        return xp.where(xp.isnan(value), math.nan, result)

    def _are_quantiles(self, values: Array, levels: Array) -> bool:
        """Tell whether values are quantiles, by the rule that is tried, where that can be read."""
        if not may_read(values):
            return False
        return bool(namespace(values).all(is_level(self.cumulative(values), levels)))

    def _inverse(
        self,
        levels: Array,
        moments: PredictiveMoments,
        slack: Any = -1.0,
        start: Array | None = None,
    ) -> Array:
        """Return quantiles by a search around those of a Normal, or around given ones."""
        xp = namespace(moments.mean)
        broadcast, centre, width = xp.broadcast_arrays(levels, moments.mean, moments.variance**0.5)
        centre = centre + width * ndtri(broadcast) if start is None else start
        width = (FIRST_BRACKET if start is None else NEXT_BRACKET) * width
        try:
            return invert_increasing(
                self.cumulative, broadcast, centre, width, self.bounds, slack, continuous=True
            )
        except NotImplementedError:
            raise no_quantiles(self.name, self.family) from None

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy by quadrature on panels between quantiles."""
        try:
            return adaptive_integral(lambda: self._entropy(self.edges(moments)), 1e-5)
        except UnsupportedMoments:
            raise no_entropy(self.name, self.family) from None

    def _entropy(self, edges: Array) -> Array:
        return density_entropy(self.log_prob, edges, self.bounds)

    def edges(self, moments: PredictiveMoments) -> Array:
        """Return rough quantiles [edges, ...], the ends of the quadrature's panels."""
        levels = edge_levels(moments.mean)
        return self._inverse(
            levels, moments, LEVEL_ERROR * namespace(levels).minimum(levels, 1 - levels)
        )


def edge_levels(mean: Array) -> Array:
    """Return the levels of the panel ends, broadcastable to a mean."""
    single = float(namespace(mean).finfo(mean.dtype).eps) > 1e-10
    lower = [level for level in TAILS if level >= SMALLEST_LEVEL or not single] + list(BODY)
    levels = np.array([*lower, *(1 - level for level in lower[-2::-1])])
    return constants(levels.reshape((-1,) + (1,) * len(mean.shape)), mean)


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
    # P(y ≤ k) of whole numbers; NotImplementedError, or None: sums of probabilities.
    cumulative: Callable[[Array], Array] | None = None

    def probs(self, mean: Array) -> Array:
        """Return the predictive probability of a success in one trial."""
        return self.success() if self.success is not None else super().probs(mean)

    def log_density(self, function: Callable[[Array], Array], value: Array) -> Array:
        """Return log predictive probabilities, by NumPy where JAX would compile each step."""
        return by_numpy(partial(super().log_density, function), value)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles by a search, or by summation of the probabilities."""

        def counts_at_levels(*arrays: Array) -> Array:
            def with_probabilities() -> Array:  # whose precision decides
                counts = self._search(*arrays)
                return namespace(counts).stack([counts, self._up_to(counts)])

            return adaptive_integral(with_probabilities, 1e-9, relative=True)[0, ...]

        return by_numpy(counts_at_levels, levels, moments.mean, moments.variance)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) by a formula, or by summation of the probabilities."""

        def probability_up_to(value: Array, mean: Array) -> Array:
            wide, _ = namespace(mean).broadcast_arrays(value, mean)
            return adaptive_integral(lambda: self._up_to(wide), 1e-9)

        return by_numpy(probability_up_to, value, moments.mean)

    def _search(self, levels: Array, mean: Array, variance: Array) -> Array:
        xp, (first, last) = namespace(mean), self.bounds
        targets, centre, width = xp.broadcast_arrays(levels, mean, variance**0.5)
        try:
            inverse = invert_increasing(
                self._by_formula, targets, centre, width, (first - 1, last), resolution=0.5
            )
        except NotImplementedError:
            return count_quantile(self._probability, levels, mean, variance, self.bounds)
        return xp.floor(inverse + 0.25)

    def _up_to(self, value: Array) -> Array:
        try:
            return self._by_formula(value)
        except NotImplementedError:
            return count_cumulative(self._probability, value, self.bounds)

    def _by_formula(self, value: Array) -> Array:
        """Return P(y ≤ value) of real numbers."""
        if self.cumulative is None:
            raise NotImplementedError
        xp, first = namespace(value), self.bounds[0]
        last = self.bounds[1] + xp.zeros_like(value)
        is_inside = (value >= first) & (value < last)
        inside = self.cumulative(xp.where(is_inside, xp.floor(value), first + xp.zeros_like(value)))
        outside = xp.where(value < first, 0.0, xp.where(value >= last, 1.0, math.nan))
        return xp.where(is_inside, inside, outside)

    def _probability(self, counts: Array) -> Array:
        return namespace(counts).exp(self.log_prob(counts))

    def _log(self, counts: Array) -> tuple[Array, Array]:
        """Return the predictive probabilities p of counts, and −p log p."""
        log_p = self.log_prob(counts)
        return namespace(log_p).exp(log_p), entropy_term_from_log(log_p)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy by summation over the counts."""
        return self._sum(self._log, moments)

    def _sum(self, terms: Callable, moments: PredictiveMoments) -> Array:
        def total(mean: Array, variance: Array) -> Array:
            summed = partial(sum_over_counts, terms, mean, variance, self.bounds)
            return adaptive_integral(summed, 1e-8)

        return by_numpy(total, moments.mean, moments.variance)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the mutual information by sums of −p log p minus its expectation."""

        def terms(counts: Array) -> tuple[Array, Array]:
            probability, entropy_term = self._log(counts)
            return probability, entropy_term - self.expected_surprisal(counts)

        return positive_part(self._sum(terms, moments))


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
    """Predictive distribution of classes; the mean [..., classes] is theirs."""

    # The mutual information, where it is not the entropy of the mean minus the expected
    # entropy.
    information: Callable[[], Array] | None = None
    ordered: bool = False  # whether the classes have an order

    def probs(self, mean: Array) -> Array:
        """Return the mean of the one-hot outcome."""
        return mean

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles by sums of probabilities, if the classes have an order."""
        if not self.ordered:
            raise no_quantiles(self.name, self.family, classes=True)
        return class_quantile(moments.mean, levels[..., 0])

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) by sums of probabilities, if the classes have an order."""
        if not self.ordered:
            raise no_distribution_function(self.name, self.family, classes=True)
        return class_cumulative(moments.mean, value)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in closed form."""
        return class_entropy(moments.mean)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return ``information()`` if given, otherwise the difference of entropies."""
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


def no_quantiles(name: str, family: str, *, classes: bool = False) -> UnsupportedMoments:
    """Return the error for quantiles without a known predictive distribution function."""
    cause = "its classes have no order" if classes else "its distribution function is not known"
    return UnsupportedMoments(
        f"site '{name}': no predictive quantiles of a {family}: {cause}",
        remedy="use probs, or sample"
        if classes
        else "take the quantiles of draws: use sample; a "
        "data frame has none by to_dataframe(mass=None)",
    )


def no_distribution_function(
    name: str, family: str, *, classes: bool = False
) -> UnsupportedMoments:
    """Return the error for ``cdf`` without a known predictive distribution function."""
    cause = "its classes have no order" if classes else "that of its likelihood is not known"
    return UnsupportedMoments(
        f"site '{name}': no predictive distribution function of a {family}: {cause}",
        remedy="use probs" if classes else "take the share of draws below the value: use sample",
    )


def no_entropy(name: str, family: str) -> UnsupportedMoments:
    """Return the error for the entropy of a predictive density that is not known."""
    return UnsupportedMoments(
        f"site '{name}': no predictive entropy of a {family}: its predictive distribution function "
        "is not known",
        remedy="take the mean of −log_prob over draws: use sample",
    )


def no_entropy_given(name: str, family: str) -> UnsupportedMoments:
    """Return the error for an unknown entropy given the parameters."""
    return UnsupportedMoments(
        f"site '{name}': no mutual information of a {family}: its entropy given its parameters is "
        "not known",
        remedy="use epistemic_variance, or entropy, which counts the noise too",
    )
