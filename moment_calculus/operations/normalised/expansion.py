"""Moments of normalised features by an expansion, for dependent features, and for many.

Centred features c = x − x̄ and q = Σ c²/d + ε depend on each other, so moments of the parts do not
suffice. Expectations under c·q^(−p) are those of a Gaussian with mean (I + 2pC/(d E q))⁻¹ E c, q is
matched by a log-normal variable, and Σ y² = d (1 − ε/q) gives the sum of the variances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    diagonal_matrix,
    namespace,
    outer,
)
from moment_calculus.values import Gaussian
from moment_calculus.values.lags import Along

TINY = 1e-30


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
class Expansion:
    """Moments of y = √d c/√q in units of √(d E q), with G = E ∂y/∂c = gain − pull · tilted tiltedᵀ.

    Cov[y] = G Cov[c] Gᵀ + R. The form of R comes from the second and third derivatives
    (Mehler's formula), its size from the known sum of the variances.
    """

    x: Gaussian
    centred: bool
    moments: tuple[Array, Array]  # mean and variance
    slope: _Slope
    remainder: _Remainder
    linear: Array  # the diagonal of G Cov[c] Gᵀ

    @classmethod
    def of(cls, x: Gaussian, eps: float, centred: bool) -> Expansion:
        """Compute it for features x on the trailing axis."""
        xp = namespace(x.mean)
        size = x.shape[-1]
        centre = centred_features if centred else (lambda a: a)
        mean, (spread, frobenius) = centre(x.mean), _invariants(x, centred)
        second = _sum(mean * mean) + _sum(spread) + size * eps
        unit = xp.clip(second, min=TINY) ** -0.5
        mean, spread, frobenius = mean * unit, spread * unit**2, frobenius * unit**4
        times = partial(_image, x, centre, unit)
        image = times(mean)
        quadratic, trace = xp.clip(_sum(mean * image), min=0.0), _sum(spread)
        growth = partial(_growth, xp.log1p(2 * frobenius + 4 * quadratic))  # 1 + Var q/(E q)²
        along = _sum(image * image) / xp.clip(quadratic, min=TINY)
        mean_shift = image / (1 + along)
        tilted = mean - 3 * image / (1 + 3 * along)
        typical = frobenius / xp.clip(trace, min=TINY)
        pull = xp.exp(growth(-1.5))
        gain = xp.exp(growth(-0.5)) - pull * typical / (1 + 3 * typical)
        images = (cov_tilted := times(tilted), times(cov_tilted))
        linear = _linear(gain, pull, tilted, images[0], spread)
        third = frobenius / 2 + typical * typical
        curved = _curved(tilted, images, third, frobenius, spread)
        square = 2 * growth(-0.5)
        variance_loss = xp.expm1(-square) - size * eps * unit**2 * xp.expm1(growth(-1.0) - square)
        share = trace + variance_loss + _sum((2 * mean - mean_shift) * mean_shift)
        total_variance = xp.clip(xp.exp(square) * share, min=0.0)
        linear_variance = _sum(linear)
        share = xp.clip(total_variance / xp.clip(linear_variance, min=TINY), max=1.0)
        rest = xp.clip(total_variance - linear_variance, min=0.0) / xp.clip(_sum(curved), min=TINY)
        root = size**0.5
        slope = _Slope(unit, root, gain, pull, tilted)
        return cls(
            x,
            centred,
            (
                root * xp.exp(growth(-0.5)) * (mean - mean_shift),
                size * (share * linear + rest * curved),
            ),
            slope,
            _Remainder(images, third, frobenius, share, rest),
            size * share * linear,
        )

    def covariance(self) -> Array:
        """Return the covariance of the result."""
        x = self.x
        matrix = x.covariance if x.has_covariance else diagonal_matrix(x.variance)
        matrix = _centre_both(matrix) if self.centred else matrix
        return self.remainder.covariance(self.slope, matrix * self.slope.unit[..., None] ** 2)

    def through(self, cross: Array) -> Array:
        """Multiply a covariance of x, [..., d, n], by the expected Jacobian."""
        if self.centred:
            cross = cross - namespace(cross).mean(cross, axis=-2, keepdims=True)
        return self.slope.apply(cross)

    def times(self, rows: Array) -> Array:
        """Return the product of the expected Jacobian with [n, ..., d], as it is shared out."""
        slope = self.slope
        along = _sum(slope.tilted * rows)
        pulled = self._scale * (slope.gain * rows - slope.pull * slope.tilted * along)
        return centred_features(pulled) if self.centred else pulled

    @property
    def _scale(self) -> Array:
        xp, slope = namespace(self.linear), self.slope
        return slope.root * slope.unit * xp.sqrt(xp.clip(self.remainder.share, min=TINY))

    def between_positions(self, between: Array, along: Along, ratio: Array | float) -> Array:
        """Return the diagonal of G_p C G_qᵀ for independent features, with G in a ratio."""
        slope, scale = self.slope, self._scale * ratio
        centre = centred_features if self.centred else (lambda a: a)
        (gain, other_gain), (pull, other_pull), (tilted, other) = map(
            along.ends, (scale * slope.gain, scale * slope.pull * slope.tilted, slope.tilted)
        )
        image, other_image = (centre(between * centre(part)) for part in (tilted, other))
        size = between.shape[-1]
        spread = between * (1 - 2 / size) + _sum(between) / size**2 if self.centred else between
        near = gain * other_pull * other_image + other_gain * pull * image
        far = pull * other_pull * _sum(tilted * other_image)
        return gain * other_gain * spread - near + far


def _growth(log: Array, exponent: float) -> Array:
    """Return log E[qᵃ] − a log E[q] of a log-normal q, given log(1 + Var q/(E q)²)."""
    return exponent * (exponent - 1) / 2 * log


def _sum(array: Array) -> Array:
    return namespace(array).sum(array, axis=-1, keepdims=True)


def centred_features(array: Array) -> Array:
    """Subtract the mean over the trailing axis."""
    return array - namespace(array).mean(array, axis=-1, keepdims=True)


def _centre_both(matrix: Array) -> Array:
    return centred_features(centred_features(matrix).mT)


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
