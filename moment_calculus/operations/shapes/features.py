"""Indexing of the trailing feature axis, which keeps the exact joint covariance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array, transpose
from moment_calculus.operations.shapes.keys import is_basic, is_integer, rank_of
from moment_calculus.operations.shapes.moves import Moved, moved
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.support import support_of_index


@dataclass(frozen=True, eq=False)
class IndexedFeatures(Moved):
    """Step of the features at a key, on the trailing axis."""

    key: Any  # a slice, or an index array of one axis

    def move(self, array: Array) -> Array:
        """Select the features of an array."""
        return array[..., self.key]

    def covariance(self) -> Array:
        """Select rows and columns of the joint covariance."""
        return self.source.joint_covariance()[..., self.key, :][..., self.key]

    @property
    def places(self) -> Any:
        """The key of the features, a slice where that is possible."""
        return self.key

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Select rows of the covariance with another value."""
        return cross[..., self.key, :]

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance with an older value, without forming the rest of the covariance.

        Two sets of features of one value need only the covariance between these sets.
        """
        result = super().covariance_with(value, other, query)
        if result is not NotImplemented or query.is_mixed:
            return result
        if isinstance(other.step, IndexedFeatures) and other.step.source is self.source:
            return self._disjoint_covariance(other.step)
        straight = len(other.step.inputs) == 1 and not other.step.nonlinear
        if not straight or not query.precedes(self.source, other):
            return NotImplemented
        swapped = query.by_inputs(other, value)
        return NotImplemented if swapped is None else transpose(swapped)

    def _disjoint_covariance(self, other: IndexedFeatures) -> Any:
        places = self.places, other.places
        size = self.source.shape[-1]
        if not all(isinstance(key, slice) for key in places) or not _are_disjoint(*places, size):
            return NotImplemented
        return self.source.covariance_between(*places)


@dataclass(frozen=True, eq=False)
class OneFeature(IndexedFeatures):
    """Step of one selected feature, as a batch of scalars."""

    @property
    def places(self) -> Any:
        """The key of the feature, a slice where it is a known integer."""
        return slice(self.key, self.key + 1 or None) if is_integer(self.key) else self.key

    def elementwise_covariance_with(
        self, value: Gaussian, other: Gaussian, query: Any
    ) -> Array | float | None:
        """Return the covariance with another feature of the same value, if it is one."""
        if other.step.affine is not None:
            return other.step.elementwise_covariance_with(other, value, query)
        step = other.step
        if not isinstance(step, OneFeature) or step.source is not self.source:
            return None
        result = self._disjoint_covariance(step)
        if result is NotImplemented:
            return self.source.joint_covariance()[..., self.key, step.key]
        return result[..., 0, 0]

    def through(self, place: int, cross: Array) -> Array:
        """Select one row of the covariance with another value."""
        return cross[..., self.key, :][..., None, :]


def _are_disjoint(first: slice, second: slice, size: int) -> bool:
    """Whether two slices of an axis have nothing in common."""
    return not set(range(*first.indices(size))) & set(range(*second.indices(size)))


def index_features(value: Gaussian, key: Any, *, distinct: bool = False) -> Gaussian:
    """Index the features of a value on its trailing axis by an integer, slice or array [n].

    ``distinct`` says that an index array is known to choose no feature twice.
    """
    distinct = distinct or is_basic(key)
    support = support_of_index(value, key) if len(value.shape) == 1 else None
    if is_integer(key) or (not is_basic(key) and not rank_of(key)):
        return moved(OneFeature(value, key), None, ties=value.ties, support=support)
    repeats = not distinct and value.propagation.full
    return moved(
        IndexedFeatures(value, key),
        -1,
        dense=value.has_covariance or repeats,
        joint=True,
        ties=value.ties if distinct else max(value.ties, Ties.FEATURES),
        support=support,
    )
