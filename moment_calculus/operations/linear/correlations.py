"""Random Cholesky factors S = diag(s) L, of scales s and a correlation matrix with an LKJ prior."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moment_calculus.errors import random_covariance
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    diagonal_matrix,
    identity_like,
    namespace,
    outer,
)
from moment_calculus.operations.elementwise.factors import factors_of
from moment_calculus.operations.elementwise.unary import is_value, shape_of
from moment_calculus.operations.linear.checks import check_no_shared_sites
from moment_calculus.operations.shapes.coordinates import (
    dependent_coordinates,
    image_of,
    is_of_independent,
)
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import Expanded, Reshaped, narrow
from moment_calculus.operations.shapes.sticks import CORRELATION_FACTOR
from moment_calculus.values import Gaussian, Spread, Step, share_sites
from moment_calculus.values.protocols import Symmetric
from moment_calculus.values.step import Product


class Factor(NamedTuple):
    """A random Cholesky factor diag(s₁ s₂ …) L."""

    coordinates: Gaussian  # of L
    correlation: Gaussian  # L
    scales: tuple[Any, ...] = ()  # values or arrays, [..., d], [..., 1] or numbers

    @property
    def scale_moments(self) -> tuple[Array, Array]:
        """Return mean [..., d] and covariance [..., d, d] of the product of the scales."""
        mean = 0 * self.correlation.mean[..., 0] + 1
        covariance = 0 * outer(mean, mean)
        for scale in self.scales:
            other, spread = moments_of_scale(scale, mean)
            covariance = covariance * (spread + outer(other, other)) + spread * outer(mean, mean)
            mean = mean * other
        return mean, covariance

    @property
    def noise_covariance(self) -> Array:
        """Return E[S Sᵀ], [..., d, d]; raise for dependent scales or coordinates."""
        if not is_of_independent(self.coordinates):
            raise dependent_coordinates(self.coordinates.sites)
        check_no_shared_sites(
            "the scales and the correlations of a multivariate Normal",
            [self.correlation, *filter(is_value, self.scales)],
        )
        mean, covariance = self.scale_moments
        return (covariance + outer(mean, mean)) * _mean_correlation(self.correlation)


def moments_of_scale(scale: Any, like: Array) -> tuple[Array, Array]:
    """Return mean [..., d] and covariance [..., d, d] of a value, array or number for d rows."""
    zeros = 0 * outer(like, like)
    if not is_value(scale):
        return scale + 0 * like, zeros
    matched = scale.gaussian()
    mean = matched.mean + 0 * like
    if not matched.shape or matched.shape[-1] == 1:
        variance = matched.variance[..., None] if matched.shape else matched.variance
        return mean, variance + zeros
    if matched.axis == -1:
        return mean, matched.joint_covariance()
    if not matched.independent:
        raise random_covariance(matched.sites)
    return mean, diagonal_matrix(matched.variance)


def factor_of(value: Any) -> Factor | None:
    """Return the parts of a random Cholesky factor; None of other values."""
    if not isinstance(value, Gaussian):
        return None
    image = image_of(value)
    if image is not None:
        known = image.support is CORRELATION_FACTOR
        return Factor(image.coordinates, value) if known else None
    step = value.step
    if step.affine is not None:
        source, scale, shift = step.affine
        unshifted = isinstance(shift, int | float) and shift == 0
        return _scaled_rows(source, scale) if unshifted else None
    if isinstance(step, Product):
        one, other = step.inputs
        return _scaled_rows(one, narrow(other)) or _scaled_rows(other, narrow(one))
    return factor_of(step.inputs[0]) if _is_repeated(value) else None


def _is_repeated(value: Gaussian) -> bool:
    """Whether the value repeats one matrix along the batch."""
    if not isinstance(value.step, Expanded | Reshaped):
        return False
    source: Gaussian = value.step.source
    return source.shape[-2:] == value.shape[-2:] and math.prod(source.shape[:-2]) == 1


def _scaled_rows(value: Gaussian, scale: Any) -> Factor | None:
    """Return the parts of a factor times a scale that is the same for all columns."""
    shape = shape_of(scale)
    factor = factor_of(value) if not shape or shape[-1] == 1 else None
    scales = [scale] if not is_value(scale) else factors_of(scale)
    if factor is None or scales is None:
        return None
    rows = [index(part, (..., 0)) if shape_of(part) else part for part in scales]
    return factor._replace(scales=(*factor.scales, *rows))


def require_factor(value: Any) -> Factor:
    """Return the parts of a random Cholesky factor; raise UnsupportedMoments for other values."""
    factor = factor_of(value)
    if factor is None:
        raise random_covariance(value.sites)
    return factor


# ---------------------------------------------------------------------------------------------
# Products


def times_factor(factor: Factor, vectors: Any) -> Gaussian | None:
    """Return S z for vectors z [..., d] that are independent of S, with exact moments.

    None where the covariance of z is not known.
    """
    weight = factor.correlation
    scales = [scale.gaussian() for scale in factor.scales if is_value(scale)]
    sources = [vectors, *scales, weight]
    if not isinstance(vectors, Gaussian) or len(weight.shape) > 2 or share_sites(*sources):
        return None
    if not is_of_independent(factor.coordinates):
        return None
    if vectors.axis != -1 and not vectors.independent:
        return None
    scale, spread = factor.scale_moments
    square = spread + outer(scale, scale)
    mean = vectors.mean @ weight.mean.mT
    noise, of_noise = _noise_of_vectors(weight, vectors)
    of_rows = _traces(weight.joint_covariance(), outer(vectors.mean, vectors.mean))
    covariance = square * noise + spread * outer(mean, mean)
    covariance = covariance + diagonal_matrix(diagonal(square) * (of_rows + of_noise))
    return Gaussian(
        mean * scale,
        Spread(diagonal(covariance), covariance, vectors.propagation.has_full_covariance),
        _Mapped(tuple(sources), scale[..., None] * weight.mean),
        propagation=vectors.propagation,
    )


@dataclass(frozen=True, eq=False)
class _Mapped(Step):
    """Step of S z, which is linear in z."""

    inputs: tuple[Gaussian, ...] = field()  # z first
    matrix: Array  # E S

    def through(self, input_index: int, cross: Array) -> Array | None:
        return self.matrix @ cross if input_index == 0 else None

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        return tuple(range(1, len(self.inputs)))


def _noise_of_vectors(weight: Gaussian, vectors: Gaussian) -> tuple[Array, Array]:
    """Return E[L] C E[L]ᵀ, and tr(K_i C) for the covariance K_i of each row of L."""
    if vectors.independent:
        variance = vectors.variance
        noise = (weight.mean * variance[..., None, :]) @ weight.mean.mT
        return noise, variance @ weight.variance.mT
    covariance = vectors.joint_covariance()
    noise = weight.mean @ covariance @ weight.mean.mT
    return noise, _traces(weight.joint_covariance(), covariance)


def _traces(rows: Array, matrix: Array) -> Array:
    """Return tr(K_i C) of K [d, d, d] and C [..., d, d], [..., d]."""
    xp, size = namespace(rows), rows.shape[-1]
    flat = xp.reshape(matrix, (*matrix.shape[:-2], size * size))
    return flat @ xp.reshape(rows, (size, size * size)).mT


def _mean_correlation(factor: Gaussian) -> Array:
    """Return E[L Lᵀ] of the Cholesky factor of a correlation matrix, whose rows are independent."""
    identity = identity_like(factor.mean[..., 0])
    return (1 - identity) * (factor.mean @ factor.mean.mT) + identity


@dataclass(frozen=True, eq=False)
class _Correlation(Symmetric):
    """Step of a correlation matrix, computed from its Cholesky factor."""

    inputs: tuple[Gaussian, ...] = field()


def correlation_matrix(factor: Gaussian) -> Gaussian:
    """Return L Lᵀ of the Cholesky factor of a correlation matrix, with exact moments."""
    xp, size = namespace(factor.mean), factor.shape[-1]
    rows = factor.joint_covariance()
    flat = (*factor.shape[:-1], size * size)
    spread, square = (xp.reshape(part, flat) for part in (rows, outer(factor.mean, factor.mean)))
    identity = identity_like(factor.mean[..., 0])
    variance = (spread @ (spread + square).mT + square @ spread.mT) * (1 - identity)
    mean = factor.mean[..., None, :, :]
    others = (1 - identity)[:, :, None] * (1 - identity)[:, None, :] * (1 - identity)
    covariance = others * (mean @ rows @ mean.mT) + diagonal_matrix(variance)
    return Gaussian(
        _mean_correlation(factor),
        Spread(variance, covariance, factor.propagation.has_full_covariance),
        _Correlation((factor,)),
        propagation=factor.propagation,
    )
