"""Softmax and logsumexp of Gaussian logits, with their covariance with the logits.

The probability of a class is the logistic function of its logit minus the logsumexp of
the others, which is matched by a Gaussian. This is closer than the pairwise comparisons
of Shekhovtsov et al. 2018, appendix C.7: largest error of a probability 0.03, not 0.06,
at logit variances up to 4. Likelihoods of classes use the logits directly, because a
softmax does not change when its logits are shifted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from moment_calculus.functions.table import Sigmoid
from moment_calculus.numerics.arrays import (
    Array,
    contract,
    diagonal,
    diagonal_matrix,
    identity_like,
    outer,
    positive_part,
)
from moment_calculus.numerics.special import log_softmax, logsumexp, namespace, safe_scale
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.operations.elementwise.sums import subtract
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.normalised.normalisation import trailing_features
from moment_calculus.values import Gaussian, Spread, Step
from moment_calculus.values.deferred import Composite

EXCLUDED = -1e9  # a logit whose exponential is zero
SATURATION = 0.8  # E[max] of two Gaussians grows with σ/√π, not with the variance of the expansion


def softmax_value(logits: Gaussian) -> Gaussian:
    """Return the softmax [..., classes] over the trailing axis; masked logits may be −∞.

    Means are those of :func:`softmax_moments`. The covariance is that of the linear map
    by the expected Jacobian diag(p) − E[p pᵀ], scaled to the variances there; the
    variance of the sum is removed. In diagonal mode logits enter as independent; the
    probabilities never do.
    """
    # Largest errors in norm, measured with up to 30 classes: 0.06, 0.35 and 0.75 of the
    # covariance at logit variances of 0.1, 1 and 4 (on average 0.03, 0.16, 0.35), and
    # 0.01, 0.15 and 0.9 of the covariance with the logits (on average 0.005, 0.05, 0.3).
    warn_of_masks(logits, "a softmax")
    trailing = trailing_features(logits, "a softmax")
    x = _without_infinities(trailing)
    mean, variance = softmax_moments(x)
    slope = _slope(mean)
    covariance = _softmax_covariance(slope @ _matrix(x) @ slope, variance)
    jacobian = slope - covariance
    spread = Spread(positive_part(diagonal(covariance)), covariance)
    return Gaussian(mean, spread, LogitsStep((trailing,), jacobian), propagation=x.propagation)


@dataclass(frozen=True, eq=False)
class LogitsStep(Step):
    """Step of a function of logits, approximated by its expected Jacobian."""

    inputs: tuple[Gaussian] = field()
    jacobian: Array  # expected, [..., d, classes]

    @property
    def assumes_independence(self) -> bool:  # type: ignore[override]
        """Whether the logits enter as independent, in diagonal mode."""
        return not self.inputs[0].propagation.has_full_covariance

    def through(self, place: int, cross: Array) -> Array:
        """Multiply the covariance of the logits by the Jacobian."""
        return self.jacobian @ cross


def _without_infinities(x: Gaussian) -> Gaussian:
    """Replace logits of −∞, with which no arithmetic is possible, by a finite number."""
    spread = Spread(x.variance, (lambda: x.covariance) if x.has_covariance else None)
    mean = namespace(x.mean).clip(x.mean, min=EXCLUDED)
    return Gaussian(mean, spread, x.step, support=x.support, propagation=x.propagation)


def _matrix(x: Gaussian) -> Array:
    return x.covariance if x.has_covariance else diagonal_matrix(x.variance)


def _slope(shares: Array) -> Array:
    """Return the Jacobian diag(p) − p pᵀ of a softmax with probabilities p."""
    return diagonal_matrix(shares) - outer(shares, shares)


def _softmax_covariance(linear: Array, variance: Array) -> Array:
    """Scale the covariance J C J to given variances, with a certain sum of the classes."""
    xp, deviation = namespace(variance), safe_scale(variance)
    scale = deviation / safe_scale(diagonal(linear))
    deviation = xp.where(variance > 0, deviation, xp.zeros_like(deviation))  # masked logits
    total = xp.sum(deviation, axis=-1, keepdims=True)
    share = deviation / xp.where(total > 0, total, xp.ones_like(total))
    # I − s 1ᵀ removes the variance of the sum.
    balance = identity_like(variance) - share[..., None]
    return contract(balance, linear * outer(scale, scale))


def logsumexp_value(logits: Gaussian) -> Gaussian:
    """Return the logsumexp [..., 1] over the trailing axis, to second order; logits may be −∞."""
    # Largest errors measured with 2 to 30 classes (random means of order 1.5, random
    # covariances): of the mean 0.001, 0.06 and 0.6 at logit variances of 0.1, 1 and 4, of
    # the variance 0.1, 0.5 and 0.3 of itself (on average 0.005, 0.06, 0.1).
    warn_of_masks(logits, "a logsumexp")
    trailing = trailing_features(logits, "a logsumexp")
    x = _without_infinities(trailing)
    xp = namespace(x.mean)
    covariance = _matrix(x)
    shares = xp.exp(log_softmax(x.mean))
    curvature = 0.5 * xp.clip(xp.sum(_slope(shares) * covariance, axis=(-2, -1)), min=0.0)
    expected = softmax_moments(x)[0]
    curved = _slope(expected) @ covariance
    second = 0.5 * xp.clip(xp.sum(curved * curved.mT, axis=(-2, -1)), min=0.0)
    linear = xp.sum((covariance @ expected[..., None])[..., 0] * expected, axis=-1)
    variance = xp.clip(linear, min=0.0) + second / (1 + second)
    approximate = logsumexp(x.mean) + curvature / (1 + SATURATION * curvature) ** 0.5
    step = LogitsStep((trailing,), expected[..., None, :])
    return Gaussian(
        approximate[..., None], Spread(variance[..., None]), step, propagation=x.propagation
    )


def softmax_moments(logits: Gaussian) -> tuple[Array, Array]:
    """Return means that sum to one, and variances, of the class probabilities [..., classes]."""
    # Largest errors measured (random means and covariances): 0.006 for two classes; for
    # up to ten classes, at logit variances up to 1, 4 and 16, 0.015, 0.035 and 0.1 of a
    # mean and 0.01, 0.02 and 0.06 of a variance.
    mean, variance = Sigmoid().moments(*against_the_rest(logits))
    return mean / namespace(mean).sum(mean, axis=-1, keepdims=True), variance


def against_the_rest(logits: Gaussian) -> tuple[Array, Array]:
    """Return mean and variance of each logit minus the logsumexp of the others [..., classes]."""
    xp = namespace(logits.mean)
    covariance = _matrix(logits)
    identity = identity_like(logits.mean)
    others = xp.where(identity > 0, EXCLUDED, logits.mean[..., None, :] + 0 * identity)
    total = logsumexp(others)
    shares = xp.exp(others - total[..., None])
    spread = xp.sum(shares * logits.variance[..., None, :], axis=-1)
    common = xp.sum((shares @ covariance) * shares, axis=-1)
    contrast = identity - shares
    variance = xp.sum((contrast @ covariance) * contrast, axis=-1)
    curvature = 0.5 * (spread - common)  # of the logsumexp, to second order
    approximate = total + curvature / (1 + SATURATION * curvature) ** 0.5
    return logits.mean - approximate, xp.clip(variance, min=0.0)


class FunctionOfLogits(Composite):
    """Base class of functions of Gaussian logits [..., classes], the source."""

    __slots__ = ("_gaussian", "_moved_from")
    sums_classes = False  # over an axis that stays with size one

    def __init__(self, source: Gaussian) -> None:
        super().__init__(source)
        self._gaussian: Gaussian | None = None
        self._moved_from: tuple[FunctionOfLogits, Callable[[Any], Any]] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return (*self.source.shape[:-1], 1) if self.sums_classes else self.source.shape

    def gaussian(self) -> Any:
        """Return the moments as a value, computed once so that every use is the same value."""
        if self._gaussian is None:
            if self._moved_from is None:
                self._gaussian = self._match()
            else:
                whole, move = self._moved_from
                self._gaussian = move(whole.gaussian())
        return self._gaussian

    def moved(self, move: Callable[[Any], Any]) -> Self:
        """Apply a shape operation that keeps the trailing axis to the logits and the moments."""
        result = type(self)(move(self.source))
        result._moved_from = (self, move)
        return result

    def _match(self) -> Any:
        raise NotImplementedError


class LogSumExp(FunctionOfLogits):
    """The logarithm of Σ exp over the classes, kept as an axis of size one."""

    __slots__ = ()
    name = "logsumexp"
    sums_classes = True

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return logsumexp(self.source.mean)[..., None]

    def _match(self) -> Gaussian:
        return logsumexp_value(self.source)


class LogSoftmax(FunctionOfLogits):
    """The logits minus their logsumexp."""

    __slots__ = ()
    name = "log_softmax"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return log_softmax(self.source.mean)

    def _match(self) -> Any:
        logits = trailing_features(self.source, "a log-softmax")
        return subtract(logits, logsumexp_value(logits))


class Softmax(FunctionOfLogits):
    """The probabilities of the classes."""

    __slots__ = ()
    name = "softmax"

    @property
    def at_mean(self) -> Array:
        """The function at the mean of the logits."""
        return namespace(self.source.mean).exp(log_softmax(self.source.mean))

    def _match(self) -> Gaussian:
        return softmax_value(self.source)


class TotalProbability(FunctionOfLogits):
    """The sum of the probabilities of the classes, kept as an axis of size one."""

    __slots__ = ()
    name = "sum"  # distributions divide by it to normalise their probabilities
    sums_classes = True

    @property
    def at_mean(self) -> Array:
        """The sum at the mean of the logits, one."""
        return namespace(self.source.mean).ones_like(self.source.mean[..., :1])

    def _match(self) -> Gaussian:
        return reduce_sum(softmax_value(self.source), (len(self.source.shape) - 1,), keepdims=True)
