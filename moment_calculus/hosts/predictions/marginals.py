"""Predictive distributions of single elements, by what is known of them: quantiles, entropies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.hosts.predictions import wording
from moment_calculus.numerics.arrays import Array, positive_part
from moment_calculus.numerics.entropies import density_entropy
from moment_calculus.numerics.quadrature import settled
from moment_calculus.numerics.quantiles import inverse, normal_quantile
from moment_calculus.numerics.special import constants, namespace, ndtr, safe_scale
from moment_calculus.refusals.errors import UnsupportedMoments

LOG_2PI_E = math.log(2 * math.pi * math.e)
TAILS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-3)  # levels of quantiles between which densities are summed
BODY = (0.01, 0.03, 0.07, 0.13, 0.2, 0.3, 0.4, 0.5)
SLACK, SINGLE = 0.15, 1e-6  # how far they may be from these, relatively; the first in float32


class PredictiveMoments(NamedTuple):
    """Predictive mean and variances of a site.

    Args:
        mean: predictive mean, of classes the probabilities.
        epistemic: what of the variance comes from not knowing the weights, of the mean's shape.
        aleatoric: what of it is noise, likewise.
    """

    mean: Array
    epistemic: Array
    aleatoric: Array

    @property
    def variance(self) -> Array:
        """Epistemic plus aleatoric."""
        return self.epistemic + self.aleatoric


@dataclass(frozen=True)
class Marginal:
    """The predictive distribution of every element of a site, of which nothing more is known.

    Args:
        name: the site.
        family: name of its distribution.
        expected_entropy: gives E_q of the entropy of an observation given its parameters.
        mean_quantile: from levels [levels] to quantiles, under q, of the mean of an observation
            given its parameters, [levels, ...].
    """

    name: str
    family: str
    bounds = (-math.inf, math.inf)  # numbers or arrays between which all values are

    expected_entropy: Callable[[], Array] | None = field(default=None, kw_only=True)
    mean_quantile: Callable[[np.ndarray], Array] | None = field(default=None, kw_only=True)

    def probs(self, mean: Array) -> Array:
        """Predictive probabilities of the classes, or of a success.

        Args:
            mean: predictive mean.

        Raises:
            UnsupportedMoments: if the distribution has none.
        """
        raise wording.no_class_probabilities(self.name, self.family)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """Quantiles of every element.

        Args:
            levels: between 0 and 1, broadcastable to the mean, in double precision.
            moments: of the prediction, likewise.

        Raises:
            UnsupportedMoments: if the predictive distribution function is not known.
        """
        raise wording.no_quantiles(self.name, self.family)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """P(y ≤ value) of every element.

        Args:
            value: broadcastable to an observation, in double precision.
            moments: of the prediction, likewise.

        Raises:
            UnsupportedMoments: if the predictive distribution function is not known.
        """
        raise wording.no_distribution_function(self.name, self.family)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """Entropy in nats, of the mean's shape; of classes without theirs.

        Args:
            moments: of the prediction, in double precision.

        Raises:
            UnsupportedMoments: if the predictive distribution is not known well enough.
        """
        raise wording.no_entropy(self.name, self.family)

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """What of the entropy comes from not knowing the parameters, likewise.

        Args:
            moments: of the prediction, in double precision.

        Raises:
            UnsupportedMoments: as :meth:`entropy`, or if that given the parameters is not known.
        """
        entropy = self.entropy(moments)
        return positive_part(entropy - self.given_parameters(moments))

    def given_parameters(self, moments: PredictiveMoments) -> Array:
        """E_q of the entropy given the parameters, of the shape of :meth:`entropy`.

        Args:
            moments: of the prediction, in double precision.

        Raises:
            UnsupportedMoments: if it is not known.
        """
        if self.expected_entropy is None:
            raise wording.no_entropy_given(self.name, self.family)
        return namespace(moments.mean).zeros_like(moments.mean) + self.expected_entropy()

    def variation_ratio(self, mean: Array) -> Array:
        """The probability of another class than the likeliest.

        Args:
            mean: predictive mean.

        Raises:
            UnsupportedMoments: if there are no classes.
        """
        raise wording.no_variation_ratio(self.name, self.family)

    def credible(self, levels: np.ndarray, moments: PredictiveMoments) -> Array:
        """Quantiles of the mean of an observation given its parameters, without its noise.

        Args:
            levels: numbers between 0 and 1, [levels].
            moments: of the prediction, in double precision.

        Returns:
            Array [levels, ...], NaN where there is no mean.

        Raises:
            UnsupportedMoments: if its distribution is not known.
        """
        if self.mean_quantile is None:
            raise wording.no_credible_interval(self.name, self.family)
        xp, mean = namespace(moments.mean), moments.mean
        found = self.mean_quantile(levels) + xp.zeros_like(mean)
        return xp.where(xp.isnan(mean), math.nan, found)


@dataclass(frozen=True)
class NormalMarginal(Marginal):
    """A Normal, which has the predictive mean and variance."""

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """In closed form."""
        return normal_quantile(moments.mean, moments.variance, levels)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """In closed form; a step where the variance is zero."""
        xp, mean = namespace(moments.mean), moments.mean
        step = xp.astype(value >= mean, mean.dtype)
        below = ndtr((value - mean) / safe_scale(moments.variance))
        return xp.where((moments.variance == 0) & ~xp.isnan(value), step, below)

    def entropy(self, moments: PredictiveMoments) -> Array:
        """In closed form."""
        return 0.5 * (LOG_2PI_E + namespace(moments.mean).log(moments.variance))

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """In closed form: ½ log(1 + epistemic/aleatoric)."""
        xp, certain = namespace(moments.mean), moments.epistemic == 0
        ratio = moments.epistemic / xp.where(certain, 1.0, moments.aleatoric)
        return 0.5 * xp.log1p(ratio)

    def credible(self, levels: np.ndarray, moments: PredictiveMoments) -> Array:
        """In closed form."""
        wide = levels.reshape((-1,) + (1,) * len(moments.mean.shape))
        return normal_quantile(moments.mean, moments.epistemic, constants(wide, moments.mean))


@dataclass(frozen=True)
class VectorMarginal(NormalMarginal):
    """The components of a multivariate Normal, which are dependent.

    Args:
        covariances: gives the covariance of the predictive distribution, and that of the noise.
    """

    covariances: Callable[[], tuple[Array, Array]]

    def entropy(self, moments: PredictiveMoments) -> Array:
        """In closed form, of all components together."""
        size = moments.mean.shape[-1]
        return 0.5 * (size * LOG_2PI_E + _log_determinant(self.covariances()[0]))

    def mutual_information(self, moments: PredictiveMoments) -> Array:
        """Likewise."""
        total, noise = map(_log_determinant, self.covariances())
        return positive_part(0.5 * (total - noise))


def _log_determinant(covariance: Array) -> Array:
    return namespace(covariance).linalg.slogdet(covariance)[1]


@dataclass(frozen=True)
class ContinuousMarginal(Marginal):
    """A continuous distribution whose predictive distribution function is known.

    Args:
        cumulative: from values to probabilities.
        log_prob: from values to the logarithms of their predictive densities.
        bounds: numbers or arrays between which all values are.
    """

    cumulative: Callable[[Array], Array]
    log_prob: Callable[[Array], Array]
    bounds: tuple[Any, Any] = (-math.inf, math.inf)

    def quantile(self, levels: Array, moments: PredictiveMoments) -> Array:
        """By inversion of the distribution function."""
        return settled(lambda: self._inverse(levels, moments), 1e-8, relative=True)

    def cdf(self, value: Array, moments: PredictiveMoments) -> Array:
        """As it is known; zero or one beyond the bounds."""
        xp = namespace(moments.mean)
        value, _ = xp.broadcast_arrays(value, moments.mean)
        low, high = (bound + xp.zeros_like(value) for bound in self.bounds)
        inside = xp.where(xp.isfinite(value), value, 0.0)
        try:
            inside = xp.minimum(xp.maximum(inside, low), high)
            found = settled(lambda: self.cumulative(inside), 1e-9)
        except NotImplementedError:
            raise wording.no_distribution_function(self.name, self.family) from None
        below = (value < low) | (value == -math.inf)  # at the lower bound there may be an atom
        found = xp.where(below, 0.0, xp.where(value >= high, 1.0, found))
        return xp.where(xp.isnan(value), math.nan, found)

    def _inverse(self, levels: Array, moments: PredictiveMoments, slack: Any = -1.0) -> Array:
        xp = namespace(moments.mean)
        wide, centre, width = xp.broadcast_arrays(levels, moments.mean, moments.variance**0.5)
        try:
            return inverse(self.cumulative, wide, centre, width, self.bounds, slack)
        except NotImplementedError:
            raise wording.no_quantiles(self.name, self.family) from None

    def entropy(self, moments: PredictiveMoments) -> Array:
        """By quadrature on panels between quantiles."""
        try:
            return settled(lambda: self._entropy(self.edges(moments)), 1e-5)
        except UnsupportedMoments:
            raise wording.no_entropy(self.name, self.family) from None

    def _entropy(self, edges: Array) -> Array:
        return density_entropy(self.log_prob, edges, self.bounds)

    def edges(self, moments: PredictiveMoments) -> Array:
        """Quantiles between which the density is summed, roughly, [edges, ...].

        Args:
            moments: of the prediction, in double precision.
        """
        levels = edge_levels(moments.mean)
        return self._inverse(levels, moments, SLACK * namespace(levels).minimum(levels, 1 - levels))


def edge_levels(mean: Array) -> Array:
    """Levels of the quantiles between which a density is summed, broadcastable to a mean.

    Args:
        mean: in the precision of the distribution function.
    """
    single = float(namespace(mean).finfo(mean.dtype).eps) > 1e-10
    lower = [level for level in TAILS if level >= SINGLE or not single] + list(BODY)
    levels = np.array([*lower, *(1 - level for level in lower[-2::-1])])
    return constants(levels.reshape((-1,) + (1,) * len(mean.shape)), mean)
