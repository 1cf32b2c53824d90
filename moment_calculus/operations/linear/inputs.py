"""Inputs of linear maps: their features, and the covariance that a matrix makes of theirs."""

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
    """The value with its features on the trailing axis, to be contracted.

    Contracting another axis than the features' mixes elements of the batch. Where these are
    independent of each other, as the units of a layer that maps columns, they are features without
    a covariance, and what were features is a batch.

    Args:
        x: a value of at least one axis.
    """
    if x.axis == -1:
        return with_links(x)
    kept = x.independent or (x.apart and _has_independent_sites(x))
    if not kept and x.shape[-1] > 1:
        if x.propagation.full and (vector := as_vector(x)) is not None:
            return vector
        warn_dropped(x, "a linear map over an axis of the batch")
    return with_trailing_features(x)


@dataclass(frozen=True, eq=False)
class Carried(Moved):
    """The outputs of a layer with the covariance of a chain that goes on from one to the next."""

    identity = True

    def move(self, array: Array) -> Array:
        """As it is."""
        return array

    def covariance(self) -> Array:
        """That of the source."""
        return self.source.joint_covariance()


def with_links(x: Gaussian) -> Gaussian:
    """A value that is linear in chains with its covariance, which diagonal mode does not carry.

    Args:
        x: a value.
    """
    carried = x.has_covariance or not x.step.linked
    return x if carried else moved(Carried(x), x.axis, dense=True, ties=x.ties)


def _has_independent_sites(value: Gaussian) -> bool:
    """Whether every covariance of a value comes from a map, and none from the user."""
    return all(part.step.inputs or part.independent for part in ancestors(value))


def mapped_covariance(
    x: Gaussian, matrix: Array, between: tuple[slice, slice] = (slice(None), slice(None))
) -> Array:
    """M C Mᵀ, without forming C where the components of x are independent.

    These are products of the variances with products of rows of M, where it has fewer rows than x.

    Args:
        x: a value with features d on its trailing axis, of covariance C.
        matrix: M, [..., e, d].
        between: which rows of the result, and which of its columns.
    """
    left, right = (matrix[..., rows, :] for rows in between)
    if x.has_covariance:
        return left @ x.covariance @ right.mT
    if len(matrix.shape) == 2 and right.shape[0] <= math.prod(x.shape[:-1]):
        return pairs_of_rows(x.variance, left, right)
    return (left * x.variance[..., None, :]) @ right.mT
