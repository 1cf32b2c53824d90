"""Spread and layout of a value, and which latent elements it depends on.

A covariance has the feature axis of the value moved to the end and doubled. The names of
sites alone would make ``w[0]`` depend on ``w[1]``, and layers whose weights are stacked in
one site would be impossible: a support also says which elements, counted along the leading
axis of the site, as a bit mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from itertools import combinations
from numbers import Integral
from typing import Any

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, axis_moved


def features_last(array: Array, axis: int | None) -> Array:
    """Move the feature axis to the end; a batch of scalars gets a feature axis of size one."""
    if axis == -1:
        return array
    if axis is None:
        return array[..., None]
    return axis_moved(array, axis, -1)


def from_features_last(array: Array, axis: int | None) -> Array:
    """Undo :func:`features_last`."""
    if axis == -1:
        return array
    if axis is None:
        return array[..., 0]
    return axis_moved(array, -1, axis)


def batch_shape(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    """Return the shape without the feature axis."""
    if axis is None:
        return shape
    position = len(shape) + axis
    return shape[:position] + shape[position + 1 :]


def broadcasts(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether two shapes broadcast."""
    shorter = min(len(first), len(second))
    pairs = zip(first[len(first) - shorter :], second[len(second) - shorter :], strict=True)
    return all(1 in pair or pair[0] == pair[1] for pair in pairs)


def rank_of_batch(shape: tuple[int, ...], axis: int | None) -> int:
    """Return the number of axes without the feature axis and leading axes of size one."""
    batch = batch_shape(shape, axis)
    return next((len(batch) - index for index, size in enumerate(batch) if size > 1), 0)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to; UnsupportedMoments if they do not."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise UnsupportedMoments(
            f"operands of shapes {', '.join(map(str, shapes))} do not broadcast",
            remedy="give the operands axes of size one where they lack an axis",
        ) from None


def broadcasts_to(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Return whether ``shape`` expands to ``wide``; UnsupportedMoments if they do not broadcast."""
    wide = tuple(wide)
    return len(shape) <= len(wide) and broadcast_shape(wide, tuple(shape)) == wide


def rows_scaled(cross: Array, gain: Array, axis: int | None) -> Array:
    """Return the covariance ``batch + [d, e]`` after an elementwise step of derivative ``gain``."""
    return features_last(gain, axis)[..., :, None] * cross


Lazy = Array | Callable[[], Array] | None


class Spread:
    """Variance and covariances of a value, each computed when it is first needed."""

    # variance: of the value's shape, or a callable that computes it without the covariance if
    # that can be; may be omitted beside a covariance. covariance: batch + [d, d] over the
    # feature axis, or a callable that computes it; None if it is not known. propagated: whether
    # it is propagated; in diagonal mode it may be known for covariances of slices alone.
    __slots__ = ("covariance", "propagated", "variance")

    def __init__(
        self, variance: Lazy = None, covariance: Lazy = None, propagated: bool = True
    ) -> None:
        self.variance, self.covariance = variance, covariance
        self.propagated = propagated and covariance is not None

    @property
    def plain(self) -> bool:
        """Return whether there is a variance only."""
        return self.covariance is None

    @property
    def is_pending(self) -> bool:
        """Return whether the covariance is still to be computed."""
        return callable(self.covariance)

    def computed_covariance(self, check: Callable[[], Any]) -> Array | None:
        """Return the covariance or None; ``check`` may raise before it is computed."""
        if callable(self.covariance):
            check()
            self.covariance = self.covariance()
        return self.covariance


class Ties(IntEnum):
    """Which components of a value may depend on each other; larger means more; ALL if unknown."""

    NONE = 0
    FEATURES = 1
    """Features of one element of the batch; the elements are independent of each other."""
    ALL = 2


def strongest_ties(values: Iterable[Any]) -> Ties:
    """Return the ties of independent values side by side."""
    return max((value.ties for value in values), default=Ties.NONE)


def none_or_all(independent: bool) -> Ties:
    """Return NONE for a value whose components are all independent, else ALL."""
    return Ties.NONE if independent else Ties.ALL


Support = Mapping[str, int]
"""The latent sites on which a value depends, each with a bit mask of its elements."""

ALL = -1
NONE: Support = {}


def all_elements(sites: Iterable[str]) -> Support:
    """Return the support of all elements of some sites."""
    return dict.fromkeys(sites, ALL)


def overlap(left: Any, right: Any) -> frozenset[str]:
    """Return the latent sites through which two values may depend on each other."""
    ours, theirs = left.support, right.support
    shared = ours.keys() & theirs
    return frozenset([site for site in shared if ours[site] & theirs[site]] if shared else ())


def share_sites(*values: Any) -> frozenset[str]:
    """Return the latent sites on which at least two of the values depend."""
    return frozenset().union(*(overlap(*pair) for pair in combinations(values, 2)))


def union(values: Iterable[Any]) -> Support:
    """Return the support of a value that is computed from other values."""
    found = NONE
    for value in values:
        part = value.support
        if found and part is not found:
            part = {**found, **{site: found.get(site, 0) | mask for site, mask in part.items()}}
        found = part
    return found


def support_of_index(value: Any, key: Any) -> Support | None:
    """Return the support that an integer or slice of the leading axis leaves; None if unknown."""
    source = value.origin
    if source.step.inputs or not source.independent or source.shape != value.shape:
        return None
    size = value.shape[0]
    if isinstance(key, Integral):
        chosen: Iterable[int] = (int(key) % size,)
    elif isinstance(key, slice) and key != slice(None):
        chosen = range(*key.indices(size))
    else:
        return None
    return dict.fromkeys(source.sites, _mask(chosen))


def _mask(bits: Iterable[int]) -> int:
    if isinstance(bits, range) and abs(bits.step) == 1 and bits:
        return ((1 << len(bits)) - 1) << min(bits[0], bits[-1])
    return sum(1 << bit for bit in bits)
