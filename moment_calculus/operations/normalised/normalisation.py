"""Normalisation of features by their mean and deviation, or by the sum of exponentials.

Centred features c = x − x̄ and q = Σ c²/d + ε depend on each other, so moments of the
parts do not suffice. Expectations under c·q^(−p) are those of a Gaussian with mean (I +
2pC/(d E q))⁻¹ E c, q is matched by a log-normal variable, and Σ y² = d (1 − ε/q) gives
the sum of the variances.

The probability of a class under softmax is the logistic function of its logit minus the
logsumexp of the others, which is matched by a Gaussian. This is closer than the pairwise
comparisons of Shekhovtsov et al. 2018, appendix C.7: largest error of a probability 0.03,
not 0.06, at logit variances up to 4. Likelihoods of classes use the logits directly,
because a softmax does not change when its logits are shifted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.functions.table import Sigmoid
from moment_calculus.numerics.arrays import (
    Array,
    contract,
    diagonal,
    diagonal_matrix,
    identity_like,
    log_softmax,
    logsumexp,
    namespace,
    outer,
    positive_part,
    safe_scale,
)
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.operations.elementwise.sums import DEPENDENCE_REMEDY, subtract
from moment_calculus.operations.linear.reductions import reduce_sum
from moment_calculus.operations.shapes.moves import with_trailing_features
from moment_calculus.values import Gaussian, Spread, Step, Value
from moment_calculus.values.ancestry import as_vector
from moment_calculus.values.deferred import Composite

TINY = 1e-30
FEW = 32  # below so many features the masks of dropout do not average out


def normalise(value: Value, *, eps: float, centred: bool = True) -> Gaussian:
    """Return (x − x̄)/√(Var x + ε) over the trailing axis, or x/√(Σ x²/d + ε) if not centred."""
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
    step = Normalised.of(x, eps, centred)
    spread = Spread(step.variance, step.covariance, x.propagation.has_full_covariance)
    return Gaussian(step.mean, spread, step, propagation=x.propagation)


def trailing_features(value: Gaussian, what: str) -> Gaussian:
    """Return the value with features on its trailing axis; raise if dependence would be lost."""
    if value.axis == -1:
        return value
    if value.shape and (value.independent or value.shape[-1] == 1):
        return with_trailing_features(value)
    if value.shape and (vector := as_vector(value)) is not None:
        return vector
    raise UnsupportedMoments(
        f"{what} over an axis of a value of shape {value.shape} whose components depend on the "
        f"same latent site(s) {', '.join(sorted(value.sites))} in an unknown way",
        sites=value.sites,
        remedy="put the outputs of the layer on the trailing axis, or " + DEPENDENCE_REMEDY,
    )


@dataclass(frozen=True)
class _Slope:
    """The expected Jacobian G = E ∂y/∂c, in units of root · unit."""

    unit: Array  # 1/√(d E q)
    root: float  # √d
    gain: Array
    pull: Array
    tilted: Array  # the mean of c under the weight q^(−3/2)

    def apply(self, cross: Array) -> Array:
        """Return G · cross."""
        column = self.tilted[..., :, None]
        pulled = self.pull[..., None] * column * (column.mT @ cross)
        return self.root * self.unit[..., None] * (self.gain[..., None] * cross - pulled)


@dataclass(frozen=True)
class _Remainder:
    """The remainder R of the covariance, and the share of G Cov[c] Gᵀ beside it."""

    images: tuple[Array, Array]  # Cov[c] tilted, and Cov[c]² tilted
    third: Array  # weight of Cov[c] in R by the third derivatives
    frobenius: Array  # Σ Cov[c]²
    share: Array  # of G Cov[c] Gᵀ, 1 unless it exceeds the sum of the variances
    rest: Array  # weight of R

    def covariance(self, slope: _Slope, matrix: Array) -> Array:
        """Return Cov[y] from Cov[c] in units of 1/unit."""
        gain, pull = slope.gain[..., None], slope.pull[..., None]
        tilted, (cov_tilted, cov2_tilted) = slope.tilted, self.images
        square, mixed = outer(tilted, tilted), outer(tilted, cov_tilted)
        strength, length = (
            _sum(tilted * cov_tilted)[..., None],
            _sum(cov_tilted * cov_tilted)[..., None],
        )
        mixed = mixed + mixed.mT
        linear = gain**2 * matrix - gain * pull * mixed + pull**2 * strength * square
        far = outer(tilted, cov2_tilted)
        curved = (
            (strength + self.third[..., None]) * matrix
            + outer(cov_tilted, cov_tilted)
            + far
            + far.mT
        )
        curved = curved - 3 * strength * mixed
        weight = self.frobenius[..., None] / 2 - 3 * length + 4.5 * strength**2
        curved = curved + weight * square
        share, rest = self.share[..., None], self.rest[..., None]
        return slope.root**2 * (share * linear + rest * curved)


@dataclass(frozen=True, eq=False)
class Normalised(Step):
    """Step of y = √d c/√q in units of √(d E q), with G = E ∂y/∂c = gain − pull · tilted tiltedᵀ.

    Cov[y] = G Cov[c] Gᵀ + R. The form of R comes from the second and third derivatives
    (Mehler's formula), its size from the known sum of the variances.
    """

    inputs: tuple[Gaussian] = field()
    centred: bool
    mean: Array
    variance: Array
    slope: _Slope
    remainder: _Remainder

    @classmethod
    def of(cls, x: Gaussian, eps: float, centred: bool) -> Normalised:
        """Compute the step for features x on the trailing axis."""
        xp = namespace(x.mean)
        size = x.shape[-1]
        centre = _centre if centred else (lambda a: a)
        mean, (spread, frobenius) = centre(x.mean), _invariants(x, centred)
        second = _sum(mean * mean) + _sum(spread) + size * eps
        unit = xp.clip(second, min=TINY) ** -0.5
        mean, spread, frobenius = mean * unit, spread * unit**2, frobenius * unit**4
        times = partial(_image, x, centre, unit)
        image = times(mean)
        quadratic, trace = xp.clip(_sum(mean * image), min=0.0), _sum(spread)
        log = xp.log1p(2 * frobenius + 4 * quadratic)  # log(1 + Var q/(E q)²)
        along = _sum(image * image) / xp.clip(quadratic, min=TINY)
        mean_shift = image / (1 + along)
        tilted = mean - 3 * image / (1 + 3 * along)
        typical = frobenius / xp.clip(trace, min=TINY)
        pull = xp.exp(1.875 * log)
        gain = xp.exp(0.375 * log) - pull * typical / (1 + 3 * typical)
        images = (cov_tilted := times(tilted), times(cov_tilted))
        linear = _linear(gain, pull, tilted, images[0], spread)
        third = frobenius / 2 + typical * typical
        curved = _curved(tilted, images, third, frobenius, spread)
        variance_loss = xp.expm1(-0.75 * log) - size * eps * unit**2 * xp.expm1(0.25 * log)
        share = trace + variance_loss + _sum((2 * mean - mean_shift) * mean_shift)
        total_variance = xp.clip(xp.exp(0.75 * log) * share, min=0.0)
        linear_variance = _sum(linear)
        share = xp.clip(total_variance / xp.clip(linear_variance, min=TINY), max=1.0)
        rest = xp.clip(total_variance - linear_variance, min=0.0) / xp.clip(_sum(curved), min=TINY)
        root = size**0.5
        slope = _Slope(unit, root, gain, pull, tilted)
        return cls(
            (x,),
            centred,
            root * xp.exp(0.375 * log) * (mean - mean_shift),
            size * (share * linear + rest * curved),
            slope,
            _Remainder(images, third, frobenius, share, rest),
        )

    @property
    def assumes_independence(self) -> bool:  # type: ignore[override]
        """Whether the features enter as independent, in diagonal mode."""
        return not self.inputs[0].propagation.has_full_covariance

    def covariance(self) -> Array:
        """Return the covariance of the result."""
        (x,) = self.inputs
        matrix = x.covariance if x.has_covariance else diagonal_matrix(x.variance)
        matrix = _centre_both(matrix) if self.centred else matrix
        return self.remainder.covariance(self.slope, matrix * self.slope.unit[..., None] ** 2)

    def through(self, place: int, cross: Array) -> Array:
        """Multiply the covariance of x by the expected Jacobian."""
        xp = namespace(cross)
        if self.centred:
            cross = cross - xp.mean(cross, axis=-2, keepdims=True)
        return self.slope.apply(cross)


def _sum(array: Array) -> Array:
    return namespace(array).sum(array, axis=-1, keepdims=True)


def _centre(array: Array) -> Array:
    return array - namespace(array).mean(array, axis=-1, keepdims=True)


def _centre_both(matrix: Array) -> Array:
    return _centre(_centre(matrix).mT)


def _image(x: Gaussian, centre: Callable[[Array], Array], unit: Array, vector: Array) -> Array:
    vector = centre(vector)
    times = (x.covariance @ vector[..., None])[..., 0] if x.has_covariance else x.variance * vector
    return centre(times) * unit**2


def _linear(gain: Array, pull: Array, tilted: Array, image: Array, spread: Array) -> Array:
    """Return the diagonal of G Cov[c] Gᵀ."""
    through = pull * pull * _sum(tilted * image) * tilted * tilted
    whole = gain * gain * spread - 2 * gain * pull * tilted * image + through
    return namespace(whole).clip(whole, min=0.0)


def _curved(
    tilted: Array, images: tuple[Array, Array], third: Array, frobenius: Array, spread: Array
) -> Array:
    """Return the diagonal of R up to its weight: ½ tr(H_i C H_j C) for second derivatives H."""
    cov_tilted, cov2_tilted = images
    strength, length = _sum(tilted * cov_tilted), _sum(cov_tilted * cov_tilted)
    weight = frobenius / 2 - 3 * length + 4.5 * strength * strength
    whole = (strength + third) * spread + cov_tilted * cov_tilted + 2 * tilted * cov2_tilted
    whole = whole - 6 * strength * tilted * cov_tilted + weight * tilted * tilted
    return namespace(whole).clip(whole, min=0.0)


def _invariants(x: Gaussian, centred: bool) -> tuple[Array, Array]:
    """Return the diagonal and squared Frobenius norm of the covariance of centred features."""
    if x.has_covariance:
        matrix: Array = x.covariance
        matrix = _centre_both(matrix) if centred else matrix
        return diagonal(matrix), _sum(_sum(matrix * matrix)[..., 0])
    variance: Array = x.variance
    squares, size = _sum(variance * variance), variance.shape[-1]
    if not centred:
        return variance, squares
    total: Array = _sum(variance)
    spread = variance * (1 - 2 / size) + total / size**2
    return spread, squares * (1 - 2 / size) + total * total / size**2


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
