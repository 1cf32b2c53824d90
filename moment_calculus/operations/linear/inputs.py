"""Inputs of linear maps: their feature axis, and the covariance of their image."""

from __future__ import annotations

import math
from dataclasses import dataclass

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import pairs_of_rows
from moment_calculus.operations.shapes.moves import (
    Moved,
    moved,
    warn_dropped,
    with_trailing_features,
)
from moment_calculus.values import Gaussian
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.vectors import as_vector


def features_of(x: Gaussian) -> Gaussian:
    """Return the value with its trailing axis as feature axis, ready to be contracted."""
    if x.axis == -1:
        return with_chain_covariance(x)
    # Contracting another axis than the feature axis mixes elements of the batch. If these
    # are independent, as the units of a layer that maps columns, they become features
    # without a covariance, and the old features become a batch.
    keeps_features = x.independent or (x.batch_independent and _has_independent_sites(x))
    if not keeps_features and x.shape[-1] > 1:
        if x.propagation.full and (vector := as_vector(x)) is not None:
            return vector
        warn_dropped(x, "a linear map over an axis of the batch")
    return with_trailing_features(x)


@dataclass(frozen=True, eq=False)
class WithChainCovariance(Moved):
    """Step that gives a value the covariance of the latent chains that it is linear in."""

    identity = True

    def move(self, array: Array) -> Array:
        """Return the array as it is."""
        return array

    def covariance(self) -> Array:
        """Return the joint covariance of the source."""
        return self.source.joint_covariance()


def with_chain_covariance(x: Gaussian) -> Gaussian:
    """Return a value that is linear in chains with its covariance, in diagonal mode too."""
    carried = x.has_covariance or not x.step.linear_in_chains
    return x if carried else moved(WithChainCovariance(x), x.axis, dense=True, ties=x.ties)


def _has_independent_sites(value: Gaussian) -> bool:
    """Whether all sources of a value have independent components."""
    return all(part.step.inputs or part.independent for part in ancestors(value))


def mapped_covariance(
    x: Gaussian, matrix: Array, between: tuple[slice, slice] = (slice(None), slice(None))
) -> Array:
    """Return M C Mᵀ for features [..., d] of covariance C and a matrix M [..., e, d].

    ``between`` selects rows and columns of the result.
    """
    left, right = (matrix[..., rows, :] for rows in between)
    if x.has_covariance:
        return left @ x.covariance @ right.mT
    # For independent components C is not formed: products of rows of M times the
    # variances.
    if len(matrix.shape) == 2 and right.shape[0] <= math.prod(x.shape[:-1]):
        return pairs_of_rows(x.variance, left, right)
    return (left * x.variance[..., None, :]) @ right.mT
