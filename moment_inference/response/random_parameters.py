"""Find the Gaussians behind the parameters of a likelihood, and replace their moments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from moment_calculus.numerics.arrays import Array, namespace
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.shapes.coordinates import image_of, on_support
from moment_calculus.operations.shapes.indexing import index as take
from moment_calculus.operations.shapes.reshaping import broadcast, reshape
from moment_calculus.predictions.moments import Moments, as_value
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.ancestry import shifted_from
from moment_calculus.values.deferred import Composite
from moment_calculus.values.spread import broadcast_shape

RandomValue = Value | Composite


@dataclass(frozen=True, eq=False)
class RandomParameters:
    """The distinct Gaussians of which the random parameters of one site are functions.

    Several Gaussians are joined into one vector per element of the site, because their
    covariance matters. Gaussians that differ by a constant shift count as one.
    """

    values: Sequence[RandomValue]  # the random parameters
    # Number of trailing axes of each value that form one element, e.g. classes.
    element_axes: Sequence[int]

    @cached_property
    def gaussians(self) -> list[Gaussian]:
        """Return the Gaussian of every parameter."""
        return [_gaussian_of(value) for value in self.values]

    @cached_property
    def representatives(self) -> list[int]:
        """For each parameter: index of the first with the same Gaussian up to a shift."""
        origins = [
            (id(shifted_from(g)), element_axes)
            for g, element_axes in zip(self.gaussians, self.element_axes, strict=True)
        ]
        return [origins.index(origin) for origin in origins]

    @property
    def distinct_indices(self) -> list[int]:
        """Indices of the parameters that represent the distinct Gaussians."""
        return sorted(set(self.representatives))

    @property
    def needs_covariance(self) -> bool:
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
        return xp.concat([self._flattened_mean(*pair) for pair in pairs], axis=-1)

    def _flattened_mean(self, mean: Array, position: int) -> Array:
        xp, event_shape = namespace(mean), self._batch_and_event_shape(position)[1]
        broadcast = xp.broadcast_to(mean, (*self._batch, *event_shape))
        return xp.reshape(broadcast, (*self._batch, math.prod(event_shape)))

    def _batch_and_event_shape(self, position: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the batch shape of a Gaussian and the shape of one element."""
        shape = self.gaussians[position].shape
        split = len(shape) - self.element_axes[position]
        return shape[:split], shape[split:]

    @property
    def _batch(self) -> tuple[int, ...]:
        return broadcast_shape(
            *(self._batch_and_event_shape(position)[0] for position in self.distinct_indices), ()
        )

    def with_gaussian_moments(self, moments: Moments, name: str) -> list[RandomValue]:
        """Return the parameters recomputed from Gaussians with the given moments."""
        propagation = replace(self.gaussians[0].propagation, covariance="full")
        joint_gaussian = as_value(moments, name, propagation)
        by_index = dict(zip(self.distinct_indices, self._split(joint_gaussian), strict=True))
        return [
            _rebuild_from(value, self._shifted_gaussian(by_index, index, representative))
            for index, (value, representative) in enumerate(
                zip(self.values, self.representatives, strict=True)
            )
        ]

    def _split(self, joint_gaussian: Gaussian) -> list[Gaussian]:
        """Split the vector into the distinct Gaussians."""
        if len(self.distinct_indices) == 1:
            return [joint_gaussian]
        gaussians, start = [], 0
        for position in self.distinct_indices:
            event_shape = self._batch_and_event_shape(position)[1]
            end = start + math.prod(event_shape)
            key = slice(start, end) if event_shape else start
            components = take(joint_gaussian, (..., key))
            gaussians.append(reshape(components, (*self._batch, *event_shape)))
            start = end
        return gaussians

    def _shifted_gaussian(
        self, gaussians: dict[int, Gaussian], index: int, representative: int
    ) -> Gaussian:
        gaussian = gaussians[representative]
        if index == representative:
            return gaussian
        shift = self.gaussians[index].mean - self.gaussians[representative].mean
        return scale_shift(gaussian, 1.0, shift).gaussian()


def _gaussian_of(value: RandomValue) -> Gaussian:
    if isinstance(value, Composite):
        return value.source
    if (image := image_of(value)) is not None:
        lead = value.shape[: len(value.shape) - image.support.event_dim]
        return broadcast(image.coordinates, (*lead, image.coordinates.shape[-1]))
    return value.base if isinstance(value, Deferred) else value.gaussian()


def _rebuild_from(value: RandomValue, source: Gaussian) -> RandomValue:
    if isinstance(value, Composite):
        return type(value)(source)
    if (image := image_of(value)) is not None:
        return on_support(image.support, source)
    return Deferred(source, value.recognised_function) if isinstance(value, Deferred) else source
