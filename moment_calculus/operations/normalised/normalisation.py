"""Normalisation of features by their own mean and standard deviation.

Moments of few independent features are those of :mod:`.integral`. An expansion serves others:
centred features c = x − x̄ and q = Σ c²/d + ε depend on each other, so moments of the parts do not
suffice. Expectations under c·q^(−p) are those of a Gaussian with mean (I +
2pC/(d E q))⁻¹ E c, q is matched by a log-normal variable, and Σ y² = d (1 − ε/q) gives
the sum of the variances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from moment_calculus.errors import ApproximationWarning, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    diagonal_matrix,
    namespace,
    outer,
    safe_scale,
    to_numpy,
)
from moment_calculus.numerics.derivatives import may_read
from moment_calculus.operations.dropout.noise import warn_of_masks
from moment_calculus.operations.elementwise.sums import DEPENDENCE_REMEDY
from moment_calculus.operations.normalised.integral import Integral, integral_of
from moment_calculus.operations.shapes.moves import with_trailing_features
from moment_calculus.values import Gaussian, Spread, Step, Value
from moment_calculus.values.ancestry import as_vector, branches_of
from moment_calculus.values.lags import Along, Pairs
from moment_calculus.values.step import Added

TINY = 1e-30
MOST = 16  # features of the integral, which takes some ten times as long as the expansion
FEW = 32  # below so many features the masks of dropout do not average out


def normalise(value: Value, *, eps: float, centred: bool = True) -> Gaussian:
    """Return (x − x̄)/√(Var x + ε) over the trailing axis, or x/√(Σ x²/d + ε) if not centred.

    Up to 16 features that are independent, or taken as such by covariance="diagonal" and
    "backward", have their moments by an integral over one variable (:mod:`.integral`): of 3 to 16
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

    Where one of 16 features has 85 % of the variance, its standard deviations are 0.82 of those
    of draws. Two centred features have two values alone, and moments that are off by factors in
    both. Eager programs warn where a row of the table is off by more than 5 %.
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
        _warn_of_few(x, centred)
    step = Normalised.of(x, eps, centred)
    spread = Spread(step.variance, step.covariance, x.propagation.has_full_covariance)
    return Gaussian(step.mean, spread, step, propagation=x.propagation)


# By the number of features, the share of the variance in the sum of squares from which on
# standard deviations are off by more than 5 %.
_LARGEST_SHARES = {2: 1e-4, 3: 0.005, 4: 0.05}
_LARGEST_BY_INTEGRAL = {2: 1e-4}


def _warn_of_few(x: Gaussian, centred: bool) -> None:
    shares = _LARGEST_SHARES if _by_expansion(x) else _LARGEST_BY_INTEGRAL
    largest = shares.get(x.shape[-1])
    if largest is None or not centred or branches_of(x) is not None or not may_read(x.mean):
        return
    centre = _centre(x.mean)
    spread = float(to_numpy(x.variance).sum())
    total = float((to_numpy(centre) ** 2).sum()) + spread
    if spread > largest * total:
        warn_user(
            f"a normalisation of {x.shape[-1]} features with a share of {spread / total:.2f} of "
            "variance in their squares: standard deviations are off by 5 to 16 % with four or "
            "three features, by factors with two; normalise more together, or compare with "
            "draws: moment_accuracy, propagation='sampled'",
            ApproximationWarning,
        )


def _by_expansion(x: Gaussian) -> bool:
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
    linear: Array  # the diagonal of G Cov[c] Gᵀ, by the expansion
    integral: Integral | None = None  # which takes the place of the expansion

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
        step = cls(
            (x,),
            centred,
            root * xp.exp(0.375 * log) * (mean - mean_shift),
            size * (share * linear + rest * curved),
            slope,
            _Remainder(images, third, frobenius, share, rest),
            size * share * linear,
        )
        if _by_expansion(x):
            return step
        integral = integral_of(x.mean, x.variance, eps, centred)
        mean, variance = integral.moments
        return replace(step, mean=mean, variance=variance, integral=integral)

    @cached_property
    def beyond(self) -> Array:
        """The variance of R."""
        linear = self.linear if self.integral is None else self.integral.linear
        return namespace(linear).clip(self.variance - linear, min=0.0)

    @property
    def assumes_independence(self) -> bool:  # type: ignore[override]
        """Whether the features enter as independent, in diagonal mode."""
        return not self.inputs[0].propagation.has_full_covariance

    def covariance(self) -> Array:
        """Return the covariance of the result."""
        (x,) = self.inputs
        if self.integral is not None:
            linear = (self.integral.jacobian * x.variance[..., None, :]) @ self.integral.jacobian
            return linear + diagonal_matrix(self.beyond)
        matrix = x.covariance if x.has_covariance else diagonal_matrix(x.variance)
        matrix = _centre_both(matrix) if self.centred else matrix
        return self.remainder.covariance(self.slope, matrix * self.slope.unit[..., None] ** 2)

    def through(self, place: int, cross: Array) -> Array:
        """Multiply the covariance of x by the expected Jacobian."""
        xp = namespace(cross)
        if self.integral is not None:
            return self.integral.jacobian @ cross
        if self.centred:
            cross = cross - xp.mean(cross, axis=-2, keepdims=True)
        return self.slope.apply(cross)

    def pull(self, value: Gaussian, place: int, cotangent: Array) -> Array:
        """Multiply a cotangent by the transpose of the expected Jacobian, as it is shared out."""
        slope, share = self.slope, self.remainder.share
        xp = namespace(cotangent)
        if self.integral is not None:
            pulled = self.integral.times(_centre(cotangent) if self.centred else cotangent)
            return _centre(pulled) if self.centred else pulled
        scale = slope.root * slope.unit * xp.sqrt(xp.clip(share, min=TINY))
        along = _sum(slope.tilted * cotangent)
        pulled = scale * (slope.gain * cotangent - slope.pull * slope.tilted * along)
        return _centre(pulled) if self.centred else pulled

    def own(self, value: Gaussian) -> Added:
        """Return the variances of the remainder R."""
        return Added(self.beyond)

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the covariances at all pairs of positions along an axis, as of G and R."""
        if not isinstance(pairs, Along):
            return NotImplemented
        between = self._of_features(pairs)
        return (
            None if between is None else self._linear(between, pairs) + self._rest(between, pairs)
        )

    def own_lag(self, value: Gaussian, offset: tuple[int, ...], absorbed: bool) -> Array | None:
        """Return the covariance of R at an offset along one axis."""
        places = [place for place, apart in enumerate(offset) if apart]
        along, arrays = Along(places[0] - len(offset)), value.memo.arrays
        between = self._of_features(along) if len(places) == 1 else None
        if between is None:
            return None
        if (self, along) not in arrays:
            arrays[self, along] = self._rest(between, along)
        return along.at(arrays[self, along], offset[places[0]])

    def _of_features(self, along: Along) -> Array | None:
        (x,) = self.inputs
        known = not x.propagation.has_full_covariance and x.axis == -1 != along.axis
        return along.covariances(x) if known else None

    def _linear(self, between: Array, along: Along) -> Array:
        """Return the diagonal of G_p C G_qᵀ for features that are independent of each other."""
        xp, centre = namespace(between), _centre if self.centred else (lambda a: a)
        slope = self.slope
        scale = slope.root * slope.unit * xp.sqrt(xp.clip(self.remainder.share, min=TINY))
        if self.integral is not None:
            scale = scale * safe_scale(self.integral.linear) / safe_scale(self.linear)
        (gain, other_gain), (pull, other_pull), (tilted, other) = map(
            along.ends, (scale * slope.gain, scale * slope.pull * slope.tilted, slope.tilted)
        )
        image, other_image = (centre(between * centre(part)) for part in (tilted, other))
        size = between.shape[-1]
        spread = between * (1 - 2 / size) + _sum(between) / size**2 if self.centred else between
        near = gain * other_pull * other_image + other_gain * pull * image
        far = pull * other_pull * _sum(tilted * other_image)
        return gain * other_gain * spread - near + far

    def _rest(self, between: Array, along: Along) -> Array:
        """Return what R has in common, by the squared correlation of x: it is of second order."""
        xp, (x,) = namespace(between), self.inputs
        own, other = along.ends(safe_scale(self.beyond))
        total = math.prod(along.ends(_sum(x.variance)))
        correlation = _sum(between) ** 2 / xp.clip(total, min=TINY)
        return own * other * xp.clip(correlation, max=1.0)

    def same_rows(self, value: Gaussian, place: int, axis: int) -> int | None:
        """Return the axis itself, but not that of the features."""
        return axis if axis != -1 else None


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
