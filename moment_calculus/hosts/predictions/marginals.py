"""Predictive distributions of single elements of a site: quantiles, probabilities, entropies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.hosts.predictions import wording
from moment_calculus.numerics.arrays import Array, positive_part
from moment_calculus.numerics.entropies import density_entropy
from moment_calculus.numerics.quadrature import adaptive_integral
from moment_calculus.numerics.quantiles import inverse, normal_quantile
from moment_calculus.numerics.special import constants, namespace, ndtr, safe_scale

LOG_2PI_E = math.log(2 * math.pi * math.e)
# Quadratures of a density have panels between the quantiles at these levels.
TAILS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3)
BODY = (0.01, 0.03, 0.07, 0.13, 0.2, 0.3, 0.4, 0.5)
LEVEL_ERROR, SMALLEST_LEVEL = (
    0.15,
    1e-6,
)  # allowed relative error of a level; smallest level in float32


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
    """The predictive distribution of each element of a site, of which only moments are known."""

    name: str
    family: str  # name of the class of its distribution
    bounds = (-math.inf, math.inf)  # numbers or arrays between which all values are

    # E_q of the entropy of an observation given its parameters.
    expected_entropy: Callable[[], Array] | None = field(default=None, kw_only=True)
    # From levels [levels] to quantiles [levels, ...] under q of E[y | parameters].
    mean_quantile: Callable[[np.ndarray], Array] | None = field(default=None, kw_only=True)

    def probs(self, mean: Array) -> Array:
        """Return predictive probabilities of the classes, or of a success."""
        raise wording.no_class_probabilities(self.name, self.family)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Return quantiles of each element, at levels that broadcast to the mean."""
        raise wording.no_quantiles(self.name, self.family)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """Return P(y ≤ value) of each element, at a value that broadcasts to an observation."""
        raise wording.no_distribution_function(self.name, self.family)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy in nats, of the mean's shape without an axis of classes."""
        raise wording.no_entropy(self.name, self.family)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Return the entropy minus the expected entropy given the parameters, at least zero."""
        entropy = self.entropy(moments)
        return positive_part(entropy - self.expected_conditional_entropy(moments))

    def expected_conditional_entropy(self, moments: PredictiveMoments) -> Array:
        """Return E_q of the entropy given the parameters, of the shape of :meth:`entropy`."""
        if self.expected_entropy is None:
            raise wording.no_entropy_given(self.name, self.family)
        return namespace(moments.mean).zeros_like(moments.mean) + self.expected_entropy()

    def variation_ratio(self, mean: Array) -> Array:
        """Return the probability of another class than the likeliest."""
        raise wording.no_variation_ratio(self.name, self.family)

    def credible_quantiles(self, levels: np.ndarray, moments: PredictiveMoments) -> Array:
        """Return quantiles [levels, ...] of the mean of an observation given its parameters."""
        if self.mean_quantile is None:
            raise wording.no_credible_interval(self.name, self.family)
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
        """Return quantiles [levels, ...] of the Gaussian mean of an observation in closed form."""
        broadcast = levels.reshape((-1,) + (1,) * len(moments.mean.shape))
        return normal_quantile(moments.mean, moments.epistemic, constants(broadcast, moments.mean))


@dataclass(frozen=True)
class VectorMarginal(NormalMarginal):
    """The dependent components of a multivariate Normal predictive distribution."""

    covariances: Callable[[], tuple[Array, Array]]  # predictive covariance, noise covariance

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
        return adaptive_integral(lambda: self._inverse(levels, moments), 1e-8, relative=True)

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
            raise wording.no_distribution_function(self.name, self.family) from None
        below = (value < low) | (value == -math.inf)  # the bound itself may have an atom
        result = xp.where(below, 0.0, xp.where(value >= high, 1.0, result))
        return xp.where(xp.isnan(value), math.nan, result)

    def _inverse(self, levels: Array, moments: PredictiveMoments, slack: Any = -1.0) -> Array:
        xp = namespace(moments.mean)
        broadcast, centre, width = xp.broadcast_arrays(levels, moments.mean, moments.variance**0.5)
        try:
            return inverse(self.cumulative, broadcast, centre, width, self.bounds, slack)
        except NotImplementedError:
            raise wording.no_quantiles(self.name, self.family) from None

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Return the entropy by quadrature on panels between quantiles."""
        try:
            return adaptive_integral(lambda: self._entropy(self.edges(moments)), 1e-5)
        except UnsupportedMoments:
            raise wording.no_entropy(self.name, self.family) from None

    def _entropy(self, edges: Array) -> Array:
        return density_entropy(self.log_prob, edges, self.bounds)

    def edges(self, moments: PredictiveMoments) -> Array:
        """Return rough quantiles [edges, ...], the ends of the panels of the quadrature."""
        levels = edge_levels(moments.mean)
        return self._inverse(
            levels, moments, LEVEL_ERROR * namespace(levels).minimum(levels, 1 - levels)
        )


def edge_levels(mean: Array) -> Array:
    """Return the levels of the panel ends, broadcastable to a mean and in its precision."""
    single = float(namespace(mean).finfo(mean.dtype).eps) > 1e-10
    lower = [level for level in TAILS if level >= SMALLEST_LEVEL or not single] + list(BODY)
    levels = np.array([*lower, *(1 - level for level in lower[-2::-1])])
    return constants(levels.reshape((-1,) + (1,) * len(mean.shape)), mean)
