"""Find the Gaussians behind the parameters of a likelihood, and replace their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.predictions.site import Moments, as_value
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.ancestry import shifted_from
from moment_calculus.values.deferred import Composite
from moment_calculus.values.spread import broadcast_shape

Random = Value | Composite


@dataclass(frozen=True, eq=False)
class RandomParameters:
    """The distinct Gaussians of which the random parameters of one site are functions.

    Several form one vector for each element of the site, because their covariance counts.
    Gaussians that differ by a constant shift count as one.
    """

    values: Sequence[Random]  # the random parameters
    element_axes: Sequence[int]  # trailing axes of each that belong to one element, such as classes

    @cached_property
    def gaussians(self) -> list[Gaussian]:
        """Return the Gaussian of every parameter."""
        return [_source_of(value) for value in self.values]

    @cached_property
    def same_as(self) -> list[int]:
        """Return the first parameter whose Gaussian is each one's but for a constant."""
        origins = [
            (id(shifted_from(g)), element_axes)
            for g, element_axes in zip(self.gaussians, self.element_axes, strict=True)
        ]
        return [origins.index(origin) for origin in origins]

    @property
    def distinct_indices(self) -> list[int]:
        """Return the places of parameters whose Gaussians are distinct."""
        return sorted(set(self.same_as))

    @property
    def joint(self) -> bool:
        """Return whether covariances over the last axis of :attr:`mean` are needed."""
        return len(self.distinct_indices) > 1 or self.element_axes[0] > 0

    @property
    def mean(self) -> Array:
        """Return the mean of the Gaussians, concatenated, [*batch, components]."""
        means = [self.gaussians[position].mean for position in self.distinct_indices]
        if len(means) == 1:
            return means[0]
        xp = namespace(*means)
        pairs = zip(means, self.distinct_indices, strict=True)
        return xp.concat([self._wide(*pair) for pair in pairs], axis=-1)

    def _wide(self, mean: Array, position: int) -> Array:
        xp, event = namespace(mean), self._shape(position)[1]
        wide = xp.broadcast_to(mean, (*self._batch, *event))
        return xp.reshape(wide, (*self._batch, math.prod(event)))

    def _shape(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the batch shape of a Gaussian and the shape of one element."""
        shape = self.gaussians[position].shape
        split = len(shape) - self.element_axes[position]
        return shape[:split], shape[split:]

    @property
    def _batch(self) -> tuple[int, ...]:
        return broadcast_shape(
            *(self._shape(position)[0] for position in self.distinct_indices), ()
        )

    def with_moments(self, moments: Moments, name: str) -> list[Random]:
        """Return the same functions of Gaussians with moments of :attr:`mean`."""
        propagation = replace(self.gaussians[0].propagation, covariance="full")
        whole = as_value(moments, name, propagation)
        by_index = dict(zip(self.distinct_indices, self._split(whole), strict=True))
        pairs = enumerate(zip(self.values, self.same_as, strict=True))
        return [
            _of_source(value, self._shifted(by_index, i, position))
            for i, (value, position) in pairs
        ]

    def _split(self, whole: Gaussian) -> list[Gaussian]:
        """Split the vector into the distinct Gaussians."""
        if len(self.distinct_indices) == 1:
            return [whole]
        events = [self._shape(position)[1] for position in self.distinct_indices]
        ends = np.cumsum([math.prod(event) for event in events])
        triples = zip(events, [0, *ends[:-1]], ends, strict=True)
        keys = [slice(start, end) if event else start for event, start, end in triples]
        shapes = [(*self._batch, *event) for event in events]
        pairs = zip(keys, shapes, strict=True)
        return [reshape(index(whole, (..., key)), shape) for key, shape in pairs]

    def _shifted(self, by_index: dict[int, Gaussian], at: int, position: int) -> Gaussian:
        if at == position:
            return by_index[position]
        shift = self.gaussians[at].mean - self.gaussians[position].mean
        return scale_shift(by_index[position], 1.0, shift).gaussian()


def _source_of(value: Random) -> Gaussian:
    if isinstance(value, Composite):
        return value.source
    return value.base if isinstance(value, Deferred) else value.gaussian()


def _of_source(value: Random, source: Gaussian) -> Random:
    if isinstance(value, Composite):
        return type(value)(source)
    return Deferred(source, value.recognised_function) if isinstance(value, Deferred) else source
