"""The interface of a rule for classes, roots of Gaussian logits, and bounds of E lse(f)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, ApproximationWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    Array,
    cholesky,
    constants,
    diagonal,
    diagonal_matrix,
    gammaln,
    identity_like,
    log_softmax,
    logsumexp,
    namespace,
    outer,
    positive_part,
    safe_scale,
    solve,
    stop_gradient,
)
from moment_calculus.operations.elementwise.sums import Sum
from moment_calculus.operations.linear.maps import LinearMap
from moment_calculus.values.ancestry import as_vector
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.spread import broadcast_shape, overlap
from moment_calculus.values.step import entries_of

JITTER = 1e-6  # relative increase of every variance, which makes a covariance definite


# With more classes no matrix [classes, classes] is formed if that can be avoided.
MAX_MATRIX_CLASSES = 64


@dataclass(frozen=True)
class LogitRoot:
    """Gaussian logits: mean + factor · q + scale ∘ q′, standard normal q and q′."""

    mean: Array  # [..., classes]
    factor: Array | None  # [..., classes, d]
    scale: Array | None  # [..., classes], standard deviations of independent parts of the logits

    @property
    def axes(self) -> int:
        """Return the number of standard normal variables."""
        parts = (self.factor, self.scale)
        return sum(part.shape[-1] for part in parts if part is not None)

    def at(self, noise: Array) -> Array:
        """Return logits [..., classes, points] at standard normal [..., axes, points]."""
        points, features = self.mean[..., None], 0
        if self.factor is not None:
            features = self.factor.shape[-1]
            points = points + self.factor @ noise[..., :features, :]
        if self.scale is not None:
            points = points + self.scale[..., None] * noise[..., features:, :]
        return points

    def relative_to(self, value: Array) -> LogitRoot:
        """Subtract the logit of class ``value`` [...] from a root without scale."""
        xp = namespace(self.mean)
        index = value[..., None]
        mean = self.mean - xp.take_along_axis(self.mean, index, axis=-1)
        factor = self.factor - xp.take_along_axis(self.factor, index[..., None], axis=-2)
        return LogitRoot(mean, factor, None)

    @classmethod
    def of(cls, logits: Gaussian) -> LogitRoot:
        """Return the root of logits [..., classes] with the best known covariance."""
        count = logits.shape[-1]
        if logits.axis != -1:  # classes are a batch axis: of a plate, or of one site for all
            logits = as_vector(logits) or logits
        if logits.axis != -1:
            return cls(logits.mean, diagonal_matrix(safe_scale(logits.variance)), None)
        if count > MAX_MATRIX_CLASSES and (mapped := _image_of_vector(logits)) is not None:
            source, matrix = mapped
            if source.shape[-1] < count:
                return cls._of_features(logits, source, matrix)
        if logits.spread.plain and count > MAX_MATRIX_CLASSES:
            return cls(logits.mean, None, safe_scale(logits.variance))
        # Diagonal mode knows it, too, if a linear map with certain or independent weights
        # made the logits.
        return cls(logits.mean, root_of(logits.joint_covariance()), None)

    @classmethod
    def _of_features(cls, logits: Gaussian, source: Gaussian, matrix: Array) -> LogitRoot:
        """Return the root of matrix @ source plus independent noise."""
        if source.spread.plain:
            factor = matrix * safe_scale(source.variance)[..., None, :]
        else:
            factor = matrix @ root_of(source.joint_covariance())
        independent_variance = positive_part(
            logits.variance - namespace(factor).sum(factor * factor, axis=-1)
        )
        return cls(logits.mean, factor, safe_scale(independent_variance))


def root_of(covariance: Array) -> Array:
    """Return lower triangular roots of covariances [..., d, d], which may be singular."""
    xp = namespace(covariance)
    variance = diagonal(covariance)
    share = max(JITTER, 4 * float(xp.finfo(covariance.dtype).eps) * covariance.shape[-1])
    return cholesky(covariance + diagonal_matrix(share * variance + math.sqrt(TINY_VARIANCE)))


def check_classes_last(logits: Gaussian, family: str) -> None:
    """Raise if logits have a covariance over another axis than the last."""
    if logits.has_covariance and logits.axis != -1:
        raise UnsupportedMoments(
            f"the classes of a {family} are not on the feature axis of its logits",
            sites=logits.sites,
            remedy="apply the last linear map to inputs whose trailing axis is contracted"
            + OR_DRAW,
        )


def take_class(logits: Array, value: Array) -> Array:
    """Return the entries [...] of an array [..., classes] at class indices [...]."""
    xp = namespace(logits)
    shape = broadcast_shape(tuple(logits.shape[:-1]), tuple(value.shape))
    wide = xp.broadcast_to(logits, (*shape, logits.shape[-1]))
    index = xp.broadcast_to(value, shape)[..., None]
    return xp.take_along_axis(wide, index, axis=-1)[..., 0]


class ClassRule(ABC):
    """How expectations of p = softmax(f) of Gaussian logits f [..., classes] are computed.

    Every rule gives the expected log-probabilities, which the ELBO needs. A rule that
    knows the distribution of the probabilities answers the other questions, too, and sets
    ``has_distribution``.
    """

    name: str = ""  # by which users select it
    has_distribution: bool = False  # whether it knows the distribution of the probabilities

    @abstractmethod
    def log_probs(self, logits: Gaussian) -> Array:
        """Return E[log p] of every class, [..., classes]."""

    def log_prob(self, value: Array, logits: Gaussian) -> Array:
        """Return E[log p] of the observed class ``value``, [...]."""
        return take_class(self.log_probs(logits), value)

    def log_prob_of_counts(self, counts: Array, logits: Gaussian) -> Array:
        """Return E[log Multinomial(counts)], [...], of counts [..., classes]."""
        log_probs = self.log_probs(logits)
        counts = counts + 0 * log_probs
        return log_coefficient(counts) + namespace(counts).sum(counts * log_probs, axis=-1)

    def tempered(self, power: Any, value: Array, logits: Gaussian) -> Array:
        """Return (1/a) log E[pᵃ] of the observed class, [...], for a positive power a."""
        self.raise_unsupported("the mean of a power of a probability", logits)

    def tempered_of_counts(self, power: Any, counts: Array, logits: Gaussian) -> Array:
        """Return (1/a) log E[Multinomial(counts)ᵃ], [...], for a positive power a."""
        self.raise_unsupported("the mean of a power of a Multinomial density", logits)

    def probabilities(self, logits: Gaussian) -> tuple[Array, Array]:
        """Return mean and variance of every probability, [..., classes] each."""
        self.raise_unsupported("the probability of a class", logits)

    def information(self, logits: Gaussian) -> Array:
        """Return the mutual information of a class and its logits in nats, [...]."""
        self.raise_unsupported("the mutual information of a class and its logits", logits)

    def quantiles(self, logits: Gaussian, levels: Any) -> Array:
        """Return quantiles of every class's probability, [levels, ..., classes]."""
        self.raise_unsupported("the quantiles of a probability", logits)

    def raise_unsupported(self, question: str, logits: Gaussian) -> NoReturn:
        """Raise UnsupportedMoments for a question that the rule cannot answer."""
        remedy = (
            "choose categorical='points'"
            if self.has_distribution
            else ("choose categorical='points' or 'pairs', which know the law of the probabilities")
        )
        raise UnsupportedMoments(
            f"categorical={self.name!r} does not give {question}",
            sites=logits.sites,
            remedy=remedy + OR_DRAW,
        )


def log_coefficient(counts: Array) -> Array:
    """Return the logarithm of the multinomial coefficient of counts [..., classes]."""
    xp = namespace(counts)
    return gammaln(xp.sum(counts, axis=-1) + 1) - xp.sum(gammaln(counts + 1), axis=-1)


class Delta(ClassRule):
    """The expansion E lse(f) ≈ lse(m) + ½ (Σ p_c v_c − pᵀ C p), p = softmax(m), which is no bound.

    Only for the papers' tables: training finds logits where it is wrong (a loss of 91
    where it is 15 113). Errors with 4 classes: up to 0.001, 0.05 and 0.4 nats at logit
    variances of 0.1, 1 and 4. Source: Wu et al. 2019, appendix B.4; Haussmann et al.
    2019, appendix B.2.
    """

    name = "delta"
    title = "categorical='delta'"

    def log_probs(self, logits: Gaussian) -> Array:
        """Return the expansion of E[log p], [..., classes]; warn once at the user's line."""
        warn_user(
            f"{self.title} expands the logsumexp of the logits to second order, and training "
            "drives them to where that is wrong: a loss of 91 was 15113 by draws. It reproduces "
            "published tables; use the default of exact rules, categorical='points', for results",
            ApproximationWarning,
        )
        xp = namespace(logits.mean)
        probabilities = xp.exp(log_softmax(logits.mean))
        if logits.has_covariance:
            mixed = (probabilities[..., None, :] @ logits.covariance)[..., 0, :]
            curvature = xp.sum(probabilities * (logits.variance - mixed), axis=-1)
        else:
            curvature = xp.sum(probabilities * (1 - probabilities) * logits.variance, axis=-1)
        return logits.mean - (logsumexp(logits.mean) + 0.5 * curvature)[..., None]


class Jensen(ClassRule):
    """Jensen's bound E lse(f) ≤ lse(m + ½ v), which keeps the ELBO a lower bound, and a loose one.

    At the optimum of networks with one hidden layer it states a loss of 183 where it is
    156 (wine), and 1502 where it is 1327 (digits); other rules reach 82 and 731.
    Source: Jensen's inequality for the exponential functions of independent logits.
    """

    name = "jensen"

    def log_probs(self, logits: Gaussian) -> Array:
        """Return the bound of E[log p], [..., classes], from the variances alone."""
        return logits.mean - logsumexp(logits.mean + 0.5 * logits.variance)[..., None]


ROUNDS = 8  # iterations of Newton's method
LENGTHS = (1.0, 0.5, 0.1, 0.01, 0.0)  # of the steps that every iteration tries


class Tilted(ClassRule):
    """The bound E lse(f) ≤ ½ aᵀ C a + lse(m + ½ v − C a), minimised over a: a lower ELBO.

    At the minimum, a is the softmax of these exponents. At the optimum of networks with
    one hidden layer it states a loss of 114 where it is 104 (wine), and 1120 where it is
    1043 (digits). Source: Knowles and Minka 2011, with correlated logits.
    """

    name = "tilted"

    def log_probs(self, logits: Gaussian) -> Array:
        """Return the bound of E[log p], [..., classes], at the a of Newton's method."""
        covariance, raised_mean = logits.joint_covariance(), logits.mean + 0.5 * logits.variance
        tilt = stop_gradient(_tilt(stop_gradient(raised_mean), stop_gradient(covariance)))
        return logits.mean - _bound(tilt, raised_mean, covariance)[..., None]


def _tilt(raised_mean: Array, covariance: Array) -> Array:
    """Minimise the bound, convex in a, by Newton's method with trials of steps."""
    xp, identity = namespace(raised_mean), identity_like(raised_mean)
    tilt = xp.exp(log_softmax(raised_mean))
    for _ in range(ROUNDS):
        shares = xp.exp(log_softmax(raised_mean - _product(covariance, tilt)))
        curved = diagonal_matrix(shares) - outer(shares, shares)
        step = solve(identity + curved @ covariance, shares - tilt)
        step = xp.where(xp.isfinite(step), step, 0.0)  # huge covariances overflow
        steps = [tilt + length * step for length in LENGTHS]
        trials = xp.stack([*steps, xp.zeros_like(tilt)], axis=0)  # a = 0 gives Jensen's bound
        bounds = _bound(trials, raised_mean, covariance)
        best = xp.argmin(bounds, axis=0)[None, ..., None]
        tilt = xp.sum(xp.where(_trial_indices(bounds)[..., None] == best, trials, 0.0), axis=0)
    return tilt


def _trial_indices(bounds: Array) -> Array:
    """Return the index of every trial, broadcastable to bounds [trials, ...]."""
    shape = (-1,) + (1,) * (len(bounds.shape) - 1)
    return constants(np.arange(bounds.shape[0]).reshape(shape), bounds)


def _bound(tilt: Array, raised_mean: Array, covariance: Array) -> Array:
    """Return the bound of E lse(f), [...]."""
    mixed = _product(covariance, tilt)
    return 0.5 * namespace(tilt).sum(tilt * mixed, axis=-1) + logsumexp(raised_mean - mixed)


def _product(matrix: Array, vector: Array) -> Array:
    return (matrix @ vector[..., None])[..., 0]


def _image_of_vector(value: Gaussian) -> tuple[Gaussian, Array] | None:
    """Return x [..., d] and the constant M, if a value is M x plus independent noise; else None."""
    step = value.step
    if isinstance(step, LinearMap):
        has_own_weights = step.mapped is not None and step.separate_weights
        return (step.mapped, step.matrix) if has_own_weights else None  # type: ignore[return-value]
    if not isinstance(step, Sum) or overlap(*step.inputs):
        return None
    for term, other in (step.inputs, step.inputs[::-1]):
        if _is_noise(other) and term.shape == value.shape:
            return _image_of_vector(term)
    return None


def _is_noise(value: Gaussian) -> bool:
    """Whether the features of a value are independent of each other in each row."""
    features = value.shape[-1:]
    while not value.spread.plain:
        if entries_of(value) is None or len(value.step.inputs) != 1:
            return False
        value = value.step.inputs[0]
        if value.axis != -1 or value.shape[-1:] != features:
            return False  # one entry may be part of several features
    return True
