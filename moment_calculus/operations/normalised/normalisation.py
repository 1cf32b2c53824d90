"""Normalisation of features by their own mean and standard deviation.

Moments of few independent features are those of :mod:`.integral`, others those of
:mod:`.expansion`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from moment_calculus.errors import ApproximationWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import (
    Array,
    namespace,
    safe_scale,
    to_numpy,
)
from moment_calculus.numerics.derivatives import may_read
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.operations.elementwise.sums import DEPENDENCE_REMEDY
from moment_calculus.operations.normalised.expansion import Expansion
from moment_calculus.operations.normalised.integral import Integral, integral_of
from moment_calculus.operations.shapes.moves import with_trailing_features
from moment_calculus.values import Gaussian, Spread, Value
from moment_calculus.values.ancestry import as_vector, branches_of
from moment_calculus.values.lags import Along, Pairs
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.step import Added

TINY = 1e-30
MOST = 32  # features of the integral, which takes some four to ten times as long as the expansion
FEW = 32  # below so many features the masks of dropout do not average out


def normalise(value: Value, *, eps: float, centred: bool = True) -> Gaussian:
    """Return (x − x̄)/√(Var x + ε) over the trailing axis, or x/√(Σ x²/d + ε) if not centred.

    Up to 32 features that are independent, or taken as such by covariance="diagonal" and
    "backward", have their moments by an integral over one variable (:mod:`.integral`): of 3 to 32
    features at σ = 0.1, 0.3, 1 and with most of the variance in one of them, means are those of
    20 000 draws to 0.006 standard deviations, and standard deviations 0.99 to 1.00 of theirs.

    With covariance="full", or more features, an expansion takes its place. Mean errors in
    standard deviations, and standard deviations over those of 20 000 draws, for means N(0, 1)
    and inputs of sd σ (a group of GroupNorm has channels · positions features):

        features   σ = 0.1       0.3           1
        3          0.01, 1.10    0.04, 1.16    0.02, 1.03
        4          0.01, 1.02    0.01, 1.05    0.01, 1.02
        8          0.01, 1.00    0.01, 1.01    0.01, 1.00
        16         0.01, 1.00    0.01, 1.00    0.01, 1.00
        32         0.01, 1.00    0.01, 1.00    0.01, 1.00

    Where one feature has 90 % of the variance, and the variance is 2, 10, 50 % of the squares,
    the expansion states 0.98, 0.91, 0.82 of the standard deviations of 16 features and 0.98,
    0.89, 0.76 of 64. Two centred features have two values alone, and moments that are off by
    factors in both. Eager programs warn where one of these figures is off by more than 5 %.
    """
    # Largest errors measured for input variances of 0.1, 1 and 4 (random means of order
    # 1, random covariances), in the Frobenius norm for Cov[y] and Cov[y, x]:
    #   d    of a mean            of a variance¹     of Cov[y]          of Cov[y, x]
    #   4    0.02, 0.05, 0.08     0.3, 0.4, 0.6      0.2, 0.4, 0.4      0.15, 0.5, 1
    #   8    0.01, 0.02, 0.02     0.1, 0.2, 0.4      0.1, 0.2, 0.3      0.05, 0.08, 0.12
    #   32   0.004, 0.005, 0.007  0.02, 0.07, 0.06   0.02, 0.04, 0.05   0.02, 0.02, 0.03
    # ¹ of the mean variance, which itself is off by 0.2 (d = 4), 0.03 (8) and 0.002 (32).
    # For d ≤ 3 variances may be off by their own size.
    x = trailing_features(value.gaussian(), "a normalisation")
    if x.shape[-1] < FEW:
        warn_of_masks(value.gaussian(), "a normalisation")
    _warn_of_rows(x, centred)
    step = Normalised((x,), eps, centred)
    mean, variance = step.result.moments
    spread = Spread(variance, step.covariance, x.propagation.has_full_covariance)
    return Gaussian(mean, spread, step, propagation=x.propagation)


# By the number of features, the share of the variance in the sum of squares from which on
# standard deviations are off by more than 5 %.
_LARGEST_SHARES = {2: 1e-4, 3: 0.005, 4: 0.05}
_LARGEST_BY_INTEGRAL = {2: 1e-4}
_WIDE = 0.07  # the same of one feature that has more variance than all others together


def _warn_of_rows(x: Gaussian, centred: bool) -> None:
    """Warn where the table of errors has more than 5 %."""
    size, expanded = x.shape[-1], _needs_expansion(x)
    share = (_LARGEST_SHARES if expanded else _LARGEST_BY_INTEGRAL).get(size) if centred else None
    may_be_wide = expanded and size > max(_LARGEST_SHARES)
    known = branches_of(x) is None and may_read(x.mean)
    if not known or not (share or may_be_wide):
        return
    mean, variance = to_numpy(x.mean), to_numpy(x.variance)
    squares = (mean - mean.mean(-1, keepdims=True) if centred else mean) ** 2 + variance
    if share:
        _warn_of_few(variance, squares, share)
    else:
        _warn_of_wide(variance, squares)


def _warn_of_few(variance: Any, squares: Any, largest: float) -> None:
    share = variance.sum() / max(squares.sum(), TINY)
    if share > largest:
        warn_user(
            f"a normalisation of {variance.shape[-1]} features with a share of {share:.2f} of "
            "variance in their squares: standard deviations are off by 5 to 16 % with four or "
            "three features, by factors with two; normalise more together, or compare with "
            "draws: moment_accuracy, propagation='sampled'",
            ApproximationWarning,
        )


def _warn_of_wide(variance: Any, squares: Any) -> None:
    largest = variance.max(-1)
    wide = (largest > 0.5 * variance.sum(-1)) & (largest > _WIDE * squares.sum(-1))
    if wide.any():
        warn_user(
            f"a normalisation of {variance.shape[-1]} features, one of which has most of their "
            f"variance in {int(wide.sum())} of {wide.size} rows: standard deviations are off by "
            f"5 to 25 % there; covariance='backward' is right with up to {MOST} features; compare "
            "with draws: moment_accuracy, propagation='sampled'",
            ApproximationWarning,
        )


def _needs_expansion(x: Gaussian) -> bool:
    return x.propagation.has_full_covariance or x.has_covariance or x.shape[-1] > MOST


def trailing_features(value: Gaussian, what: str) -> Gaussian:
    """Return the value with features on its trailing axis; raise if dependence would be lost."""
    if value.axis == -1:
        return value
    if value.shape and (value.independent or value.shape[-1] == 1):
        return with_trailing_features(value)
    if value.shape and value.propagation.is_backward:
        return with_trailing_features(value)  # a sweep backwards knows the dependence
    if value.shape and (vector := as_vector(value)) is not None:
        return vector
    raise UnsupportedMoments(
        f"{what} over an axis of a value of shape {value.shape} whose components depend on the "
        f"same latent site(s) {', '.join(sorted(value.sites))} in an unknown way",
        sites=value.sites,
        remedy="put the outputs of the layer on the trailing axis, or " + DEPENDENCE_REMEDY,
    )


@dataclass(frozen=True, eq=False)
class Normalised(KnowsLags):
    """Step of normalised features, with the expected Jacobian G and a remainder R of Cov[y]."""

    inputs: tuple[Gaussian] = field()
    eps: float
    centred: bool

    @cached_property
    def expansion(self) -> Expansion:
        """The moments by an expansion."""
        return Expansion.of(self.inputs[0], self.eps, self.centred)

    @cached_property
    def result(self) -> Expansion | Integral:
        """The moments, by the integral where the features are few and independent."""
        (x,) = self.inputs
        if _needs_expansion(x):
            return self.expansion
        return integral_of(x.mean, x.variance, self.eps, self.centred)

    @cached_property
    def remainder_variance(self) -> Array:
        """The variance of R."""
        xp, (_, variance) = namespace(self.result.linear), self.result.moments
        return xp.clip(variance - self.result.linear, min=0.0)

    @property
    def assumes_independence(self) -> bool:  # type: ignore[override]
        """Whether the features enter as independent, in diagonal mode."""
        return not self.inputs[0].propagation.has_full_covariance

    def covariance(self) -> Array:
        """Return the covariance of the result."""
        return self.result.covariance()

    def through(self, input_index: int, cross: Array) -> Array:
        """Multiply the covariance of x by the expected Jacobian."""
        return self.result.through(cross)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Multiply a cotangent by the expected Jacobian, which is symmetric."""
        return self.result.times(cotangent)

    def own(self, value: Gaussian) -> Added:
        """Return the variances of the remainder R."""
        return Added(self.remainder_variance)

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the covariances at all pairs of positions along an axis, as of G and R."""
        if not isinstance(pairs, Along):
            return NotImplemented
        between, ratio = self._feature_covariances(pairs), 1.0
        if between is None:
            return None
        if self.result is not self.expansion:
            ratio = safe_scale(self.result.linear) / safe_scale(self.expansion.linear)
        linear = self.expansion.between_positions(between, pairs, ratio)
        return linear + self._remainder_covariance(between, pairs)

    def own_lag(self, value: Gaussian, offset: tuple[int, ...], absorbed: bool) -> Array | None:
        """Return the covariance of R at an offset along one axis."""
        indices = [index for index, apart in enumerate(offset) if apart]
        along, arrays = Along(indices[0] - len(offset)), value.memo.arrays
        between = self._feature_covariances(along) if len(indices) == 1 else None
        if between is None:
            return None
        if (self, along) not in arrays:
            arrays[self, along] = self._remainder_covariance(between, along)
        return along.at(arrays[self, along], offset[indices[0]])

    def _feature_covariances(self, along: Along) -> Array | None:
        (x,) = self.inputs
        known = not x.propagation.has_full_covariance and x.axis == -1 != along.axis
        return along.covariances(x) if known else None

    def _remainder_covariance(self, between: Array, along: Along) -> Array:
        """Return what R has in common, by the squared correlation of x: it is of second order."""
        xp, (x,) = namespace(between), self.inputs
        own, other = along.ends(safe_scale(self.remainder_variance))
        total = math.prod(along.ends(_sum(x.variance)))
        correlation = _sum(between) ** 2 / xp.clip(total, min=TINY)
        return own * other * xp.clip(correlation, max=1.0)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        """Return the axis itself, but not that of the features."""
        return axis if axis != -1 else None


def _sum(array: Array) -> Array:
    return namespace(array).sum(array, axis=-1, keepdims=True)
