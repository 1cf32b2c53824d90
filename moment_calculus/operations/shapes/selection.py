"""Selected elements of the batch and selected features, with the covariances that are known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from numbers import Integral
from operator import and_
from typing import Any

from moment_calculus.numerics.arrays import Array, namespace, transpose
from moment_calculus.operations.shapes.moves import Moved, are_same_parts, is_array, moved
from moment_calculus.values import Gaussian, Ties
from moment_calculus.values.lags import lag_covariance
from moment_calculus.values.spread import batch_shape, support_of_index


@dataclass(frozen=True, eq=False)
class Indexed(Moved):
    """Step of the elements of the batch at a key."""

    keys: tuple  # of leading axes of the batch

    @property
    def may_repeat(self) -> bool:
        """Whether a key is an array."""
        return not all(map(is_basic, self.keys))

    def move(self, array: Array) -> Array:
        """Select the elements of an array."""
        return array[self.keys]

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        """Return the axis in the source; None for axes that the keys choose from."""
        rank, keys = len(self.source.shape), self.keys
        if all(is_integer(key) or is_index(key) for key in keys):
            return axis if -axis <= rank - len(keys) else None
        if not all(is_integer(key) or isinstance(key, slice) for key in keys):
            return None
        kept = [p for p in range(rank) if p >= len(keys) or not is_integer(keys[p])]
        whole = kept[axis] >= len(keys) or keys[kept[axis]] == slice(None)
        return kept[axis] - rank if whole else None

    def rearrange_rows(self, array: Array) -> Array | None:
        """Select the rows of an array of other features of the same batch."""
        return array[self.keys] if self.source.axis == -1 else None

    def covariance(self) -> Array:
        """Select the covariances of the elements."""
        return self.source.joint_covariance()[self.keys]

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the covariance of elements an offset apart by that of the source, for slices."""
        if not all(isinstance(key, slice) or is_integer(key) for key in self.keys):
            return NotImplemented
        steps, starts, offsets = [], [], iter(offset)
        keys = (*self.keys, *[slice(None)] * (len(self.source.shape) - len(self.keys)))
        for key, size in zip(keys, self.source.shape, strict=True):
            if is_integer(key):
                steps.append(0)
                starts.append(key)
                continue
            chosen, apart = range(*key.indices(size)), next(offsets)
            steps.append(apart * chosen.step)
            pairs, backwards = len(chosen) - abs(apart), chosen.step < 0
            lower = chosen[-pairs:] if backwards else chosen[:pairs]  # the ends that come first
            starts.append(slice(*_ends(lower)))
        covariance = lag_covariance(self.source, steps)
        return None if covariance is None else covariance[tuple(starts)]

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance with an older value; None if it is unknown."""
        covariance = super().covariance_with(value, other, query)
        if covariance is not NotImplemented:
            return covariance
        if isinstance(other.step, Indexed):
            return self._both_indexed(value, other, other.step, query)
        if math.prod(batch_shape(other.shape, other.axis)) == 1:  # the same for every element
            return self._chosen(query.cross(self.source, other))
        # A linear step knows the covariance by its own inputs.
        linear = other.step.inputs and not other.step.nonlinear
        if not linear or query.precedes(other, value):
            return None
        swapped = query.by_inputs(other, value)
        return None if swapped is None else transpose(swapped)

    def _both_indexed(
        self, value: Gaussian, other: Gaussian, step: Indexed, query: Any
    ) -> Array | None:
        source, theirs = self.source, step.source
        batch = batch_shape(source.shape, source.axis)
        if batch != batch_shape(theirs.shape, theirs.axis):
            return None
        if are_same_parts(self.keys, step.keys):
            return self._chosen(query.cross(source, theirs))
        # If both values claim independent elements, their sum would claim it too, wrongly
        # where the keys differ: the covariance counts as unknown.
        both_independent = value.batch_independent and other.batch_independent
        same_origin = (
            source.batch_independent and theirs.batch_independent and source.origin is theirs.origin
        )
        same = same_element(self.keys, step.keys) if same_origin and not both_independent else None
        if same is None:
            return None
        result = self._chosen(query.cross(source, theirs))
        return None if result is None else result * same[..., None, None]

    def _chosen(self, cross: Array | None) -> Array | None:
        if cross is None:
            return None
        batch = batch_shape(self.source.shape, self.source.axis)
        while len(cross.shape) > len(batch) + 2 and cross.shape[0] == 1:
            cross = cross[0]
        return namespace(cross).broadcast_to(cross, (*batch, *cross.shape[-2:]))[self.keys]


def same_element(first: tuple, second: tuple) -> Array | None:
    """Return where two keys choose the same element; None if they are not index arrays."""
    if len(first) != len(second) or not all(map(is_index, (*first, *second))):
        return None
    if len({tuple(key.shape) for key in (*first, *second)}) > 1:
        return None
    return reduce(and_, (a == b for a, b in zip(first, second, strict=True)))


def is_index(key: Any) -> bool:
    """Whether a key is an array of integers with axes."""
    return is_array(key) and bool(key.shape) and "bool" not in str(key.dtype)


def is_basic(key: Any) -> bool:
    """Whether a key is an integer, slice, Ellipsis or None, not an array or a boolean."""
    return key is None or key is Ellipsis or is_integer(key) or isinstance(key, slice)


def is_integer(key: Any) -> bool:
    """Whether a key is an integer."""
    return isinstance(key, Integral) and not isinstance(key, bool)


def rank_of(key: Any) -> int:
    """Return the number of axes of an index array, or the depth of a nested list."""
    if isinstance(key, list):
        return 1 + (rank_of(key[0]) if key else 0)
    return len(getattr(key, "shape", ()))


@dataclass(frozen=True, eq=False)
class _IndexedFeatures(Moved):
    """Step of the features at a key, on the trailing axis."""

    key: Any  # a slice, or an index array of one axis

    @property
    def may_repeat(self) -> bool:
        """Whether the key is an array."""
        return not is_basic(self.key)

    def move(self, array: Array) -> Array:
        return array[..., self.key]

    def covariance(self) -> Array:
        return self.source.joint_covariance()[..., self.key, :][..., self.key]

    def through(self, input_index: int, cross: Array) -> Array:
        return cross[..., self.key, :]

    def move_each(self, arrays: Array) -> Array:
        """Select the features of each array."""
        return self.move(arrays)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Return the cotangent between zeros, for features side by side."""
        if not isinstance(self.key, slice) or self.key.step not in (None, 1):
            return super().pull(value, input_index, cotangent)
        chosen, xp = range(*self.key.indices(self.source.shape[-1])), namespace(cotangent)
        lead, zeros = (*cotangent.shape[:-1],), xp.zeros_like(cotangent[..., :1])
        counts = chosen.start, self.source.shape[-1] - chosen.start - len(chosen)
        before, after = (xp.broadcast_to(zeros, (*lead, count)) for count in counts)
        return xp.concat([before, cotangent, after], axis=-1)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis != -1 else None

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        """Return the covariance with an older value, without forming the rest of the covariance.

        Two sets of features of one value need only the covariance between these sets.
        """
        result = super().covariance_with(value, other, query)
        if result is not NotImplemented or query.is_mixed:
            return result
        if isinstance(other.step, _IndexedFeatures) and other.step.source is self.source:
            rows, columns = _as_slice(self.key), _as_slice(other.step.key)
            if rows and columns and _are_disjoint(rows, columns, self.source.shape[-1]):
                return self._between(rows, columns)
            return NotImplemented
        straight = len(other.step.inputs) == 1 and not other.step.nonlinear
        if not straight or not query.precedes(self.source, other):
            return NotImplemented
        swapped = query.by_inputs(other, value)
        return NotImplemented if swapped is None else transpose(swapped)

    def _between(self, *parts: slice) -> Array:
        between, size = self.source.covariance_between(*parts), self.source.shape[-1]
        counts = [len(range(*part.indices(size))) for part in parts]
        return namespace(between).broadcast_to(between, (*between.shape[:-2], *counts))


@dataclass(frozen=True, eq=False)
class _OneFeature(_IndexedFeatures):
    """Step of one selected feature, as a batch of scalars."""

    def through(self, input_index: int, cross: Array) -> Array:
        return cross[..., self.key, :][..., None, :]

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        return axis - 1


def _ends(chosen: range) -> tuple[int, int | None, int]:
    return chosen.start, chosen.stop if chosen.stop >= 0 else None, chosen.step


def _as_slice(key: Any) -> slice | None:
    """Return a slice or a known integer as a slice; None for other keys."""
    if is_integer(key):
        return slice(key, key + 1 or None)
    return key if isinstance(key, slice) else None


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
        return moved(_OneFeature(value, key), None, ties=value.ties, support=support)
    repeats = not distinct and value.propagation.has_full_covariance
    return moved(
        _IndexedFeatures(value, key),
        -1,
        dense=value.has_covariance or repeats,
        joint=True,
        ties=value.ties if distinct else max(value.ties, Ties.FEATURES),
        support=support,
    )
