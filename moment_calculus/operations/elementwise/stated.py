"""A value by the moments that a rule book states, with the dependence of its linear part."""

from __future__ import annotations

from dataclasses import dataclass

from moment_calculus.numerics.arrays import Array, diagonal_matrix, outer, shrunk
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.spread import batch_shape, broadcasts, features_last, rows_scaled
from moment_calculus.values.step import Added, OfOneSource


def stated(
    linear: Gaussian, mean: Array, variance: Array, kind: type[Stated] | None = None
) -> Gaussian:
    """Return a value with some moments that depends on other values as its linear part does.

    The linear part is scaled down where it has more than the variance; what it lacks is independent
    noise, so that covariances are positive semi-definite.
    """
    factor, rest = shrunk(variance, linear.variance)
    step = (kind or Stated)(linear, factor, rest)
    return Gaussian(
        mean,
        Spread(variance, step.covariance, linear.has_covariance),
        step,
        axis=linear.axis,
        ties=linear.ties,
        propagation=linear.propagation,
    )


@dataclass(frozen=True, eq=False)
class Stated(OfOneSource):
    """Step of a value that is its source times a factor, plus noise."""

    factor: Array
    rest: Array  # variance of the noise; a subclass may have its covariance
    componentwise = True

    def through(self, input_index: int, cross: Array) -> Array | None:
        """Return the covariance, scaled; None if the factor and its batch do not broadcast."""
        if not broadcasts(batch_shape(self.source.shape, self.source.axis), cross.shape[:-2]):
            return None
        return rows_scaled(cross, self.factor, self.source.axis)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent, scaled."""
        return cotangent * self.factor

    def own(self, value: Gaussian) -> Added:
        """Return the variance of the noise."""
        return Added(self.rest)

    def covariance(self) -> Array:
        """Return the covariance over the feature axis, ``batch + [d, d]``."""
        source = self.source
        factor, rest = (features_last(part, source.axis) for part in (self.factor, self.rest))
        covariance = source.joint_covariance() * outer(factor, factor)
        return covariance + diagonal_matrix(rest)
