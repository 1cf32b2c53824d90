"""Gaussian logits of classes: their covariance as a root, draws of them, observed entries."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.numerics.arrays import Array, diagonal, diagonal_matrix, positive_part
from moment_calculus.numerics.matrices import cholesky
from moment_calculus.numerics.special import TINY_VARIANCE, namespace, safe_scale
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.layout import broadcast_shape
from moment_calculus.values.vectors import as_vector

JITTER = 1e-6  # share of every variance that is added to it, so that a covariance is definite
MANY = 64  # classes beyond which no matrix of them is formed where the map that made them is known


@dataclass(frozen=True)
class Root:
    """Gaussian logits as mean + factor · q + scale ∘ q′, of independent standard normal q and q′.

    Args:
        mean: [..., classes].
        factor: [..., classes, d], or None.
        scale: standard deviations of what is independent between the classes, [..., classes], or
            None.
    """

    mean: Array
    factor: Array | None
    scale: Array | None

    @property
    def axes(self) -> int:
        """How many standard normal variables there are."""
        parts = (self.factor, self.scale)
        return sum(part.shape[-1] for part in parts if part is not None)

    def at(self, noise: Array) -> Array:
        """Logits [..., classes, points] at standard normal variables [..., axes, points]."""
        points, features = self.mean[..., None], 0
        if self.factor is not None:
            features = self.factor.shape[-1]
            points = points + self.factor @ noise[..., :features, :]
        if self.scale is not None:
            points = points + self.scale[..., None] * noise[..., features:, :]
        return points

    def against(self, value: Array) -> Root:
        """All logits minus that of a class, which is then certain, for roots without a scale.

        Args:
            value: class indices, [...].
        """
        xp = namespace(self.mean)
        index = value[..., None]
        mean = self.mean - xp.take_along_axis(self.mean, index, axis=-1)
        factor = self.factor - xp.take_along_axis(self.factor, index[..., None], axis=-2)
        return Root(mean, factor, None)

    @classmethod
    def of(cls, logits: Gaussian) -> Root:
        """The root of logits, also of those that diagonal propagation takes as independent.

        The covariance of logits that a map with certain or independent random weights makes of its
        inputs is known in diagonal mode too. It is made definite by a share of 1e-6 (1e-5 in single
        precision) of each variance.

        Args:
            logits: Gaussian [..., classes].
        """
        count = logits.shape[-1]
        if logits.axis != -1:  # classes are a batch: of a plate, or of one site for all
            logits = as_vector(logits) or logits
        if logits.axis != -1:
            return cls(logits.mean, diagonal_matrix(safe_scale(logits.variance)), None)
        if count > MANY and (mapped := logits.step.image_of_vector(logits)) is not None:
            source, matrix = mapped
            if source.shape[-1] < count:
                return cls._of_features(logits, source, matrix)
        if logits.spread.plain and count > MANY:
            return cls(logits.mean, None, safe_scale(logits.variance))
        return cls(logits.mean, root_of(logits.joint_covariance()), None)

    @classmethod
    def _of_features(cls, logits: Gaussian, source: Gaussian, matrix: Array) -> Root:
        """Logits of more classes than features: the map of these, and what the map adds."""
        if source.spread.plain:
            factor = matrix * safe_scale(source.variance)[..., None, :]
        else:
            factor = matrix @ root_of(source.joint_covariance())
        own = positive_part(logits.variance - namespace(factor).sum(factor * factor, axis=-1))
        return cls(logits.mean, factor, safe_scale(own))


def root_of(covariance: Array) -> Array:
    """Lower triangular root of covariances [..., d, d], also of singular ones."""
    xp = namespace(covariance)
    variance = diagonal(covariance)
    share = max(JITTER, 4 * float(xp.finfo(covariance.dtype).eps) * covariance.shape[-1])
    return cholesky(covariance + diagonal_matrix(share * variance + math.sqrt(TINY_VARIANCE)))


def check_classes_last(logits: Gaussian, family: str) -> None:
    """Check that the covariance of logits is between classes.

    Args:
        logits: Gaussian [..., classes].
        family: name of the distribution.

    Raises:
        UnsupportedMoments: if their feature axis is another one than the last.
    """
    if logits.has_covariance and logits.axis != -1:
        raise UnsupportedMoments(
            f"the classes of a {family} are not on the feature axis of its logits",
            sites=logits.sites,
            remedy="apply the last linear map to inputs whose trailing axis is contracted"
            + OR_DRAW,
        )


def chosen(logits: Array, value: Array) -> Array:
    """Entries [...] of an array [..., classes] at class indices [...]."""
    xp = namespace(logits)
    shape = broadcast_shape(tuple(logits.shape[:-1]), tuple(value.shape))
    wide = xp.broadcast_to(logits, (*shape, logits.shape[-1]))
    index = xp.broadcast_to(value, shape)[..., None]
    return xp.take_along_axis(wide, index, axis=-1)[..., 0]
