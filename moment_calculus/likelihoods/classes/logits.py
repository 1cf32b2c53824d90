"""Gaussian logits of classes as a mean plus a matrix times standard normal variables."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.numerics.arrays import Array, diagonal, diagonal_matrix, positive_part
from moment_calculus.numerics.matrices import cholesky
from moment_calculus.numerics.special import TINY_VARIANCE, namespace, safe_scale
from moment_calculus.values.ancestry import as_vector
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.spread import broadcast_shape

JITTER = 1e-6  # relative increase of every variance, which makes a covariance definite
# With more classes no matrix [classes, classes] is formed if that can be avoided.
MAX_MATRIX_CLASSES = 64


@dataclass(frozen=True)
class LogitRoot:
    """Gaussian logits as mean + factor · q + scale ∘ q′ of independent standard normal q and q′."""

    mean: Array  # [..., classes]
    factor: Array | None  # [..., classes, d]
    scale: Array | None  # [..., classes], standard deviations of independent parts of the logits

    @property
    def axes(self) -> int:
        """Return the number of standard normal variables."""
        parts = (self.factor, self.scale)
        return sum(part.shape[-1] for part in parts if part is not None)

    def at(self, noise: Array) -> Array:
        """Return logits [..., classes, points] at standard normal variables [..., axes, points]."""
        points, features = self.mean[..., None], 0
        if self.factor is not None:
            features = self.factor.shape[-1]
            points = points + self.factor @ noise[..., :features, :]
        if self.scale is not None:
            points = points + self.scale[..., None] * noise[..., features:, :]
        return points

    def relative_to(self, value: Array) -> LogitRoot:
        """Subtract the logit of class ``value`` [...] from all logits of a root without scale."""
        xp = namespace(self.mean)
        index = value[..., None]
        mean = self.mean - xp.take_along_axis(self.mean, index, axis=-1)
        factor = self.factor - xp.take_along_axis(self.factor, index[..., None], axis=-2)
        return LogitRoot(mean, factor, None)

    @classmethod
    def of(cls, logits: Gaussian) -> LogitRoot:
        """Return the root of Gaussian logits [..., classes], with the best known covariance."""
        count = logits.shape[-1]
        if logits.axis != -1:  # classes are a batch axis: of a plate, or of one site for all
            logits = as_vector(logits) or logits
        if logits.axis != -1:
            return cls(logits.mean, diagonal_matrix(safe_scale(logits.variance)), None)
        if (
            count > MAX_MATRIX_CLASSES
            and (mapped := logits.step.image_of_vector(logits)) is not None
        ):
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
        """Return the root of matrix @ source plus independent noise; classes outnumber features."""
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
    """Raise UnsupportedMoments if logits have a covariance over another axis than the last."""
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
