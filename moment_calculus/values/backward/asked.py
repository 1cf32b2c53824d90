"""What a sweep is asked for: variances and covariances of the components of values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from moment_calculus.numerics.arrays import (
    Array,
    device,
    diagonal,
    identity_like,
    namespace,
    positive_part,
)
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.backward.cotangents import Cotangent
from moment_calculus.values.backward.sweep import Seed, Sweep
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.spread import batch_shape, features_last, from_features_last


def of_elements(values: Sequence[Gaussian]) -> list[Seed]:
    """Ask for the covariance of K values of one shape in each element, [*shape, K, K]."""
    shape, count = values[0].shape, len(values)
    carried = tuple(range(-len(shape), 0))
    return [
        Seed(value, Cotangent(_one_hot(value, index, count, shape), carried))
        for index, value in enumerate(values)
    ]


def _one_hot(value: Gaussian, index: int, count: int, shape: tuple[int, ...]) -> Array:
    xp = namespace(value.mean)
    one = xp.ones(
        (1, *(1 for _ in shape), *shape), dtype=value.mean.dtype, device=device(value.mean)
    )
    if count == 1:
        return one
    zero = xp.zeros_like(one)
    return xp.concat([one if k == index else zero for k in range(count)])


def of_features(value: Gaussian, some: slice = slice(None)) -> list[Seed]:
    """Ask for the covariance of some features of a value, ``batch + [d, d]``."""
    assert value.axis is not None
    rank, xp = len(value.shape), namespace(value.mean)
    carried = tuple(axis for axis in range(-rank, 0) if axis != value.axis)
    rows = identity_like(features_last(value.mean, value.axis))[some]
    shape = [len(rows)] + [1] * (len(carried) + rank)
    shape[value.axis] = rows.shape[1]
    array = xp.reshape(rows, tuple(shape))
    wide = xp.broadcast_to(array, (*shape[: 1 + len(carried)], *value.shape))
    return [Seed(value, Cotangent(wide, carried))]


def is_exact(value: Gaussian) -> bool:
    """Return whether the forward sweep drops no covariance on the way to a value."""
    full = value.propagation.has_full_covariance
    for part in ancestors(value):
        if part.step.drops_covariance or (part.step.assumes_independence and not full):
            return False
    return True


def variance(value: Gaussian) -> Array:
    """Return the variance of every component, of the shape of the value."""
    if is_exact(value):
        return value.variance
    if value.axis is not None and (size := _features_at_once(value)) < value.shape[value.axis]:
        return _in_blocks(value, size)
    joint_covariance = Sweep(of_elements([value])).covariance()[..., 0, 0]
    return positive_part(namespace(joint_covariance).broadcast_to(joint_covariance, value.shape))


LARGEST = 2**26  # numbers of one array of derivatives, up to which all features go back at once


def _features_at_once(value: Gaussian) -> int:
    """Return how many features go back together, by the largest value on the way."""
    largest = max(math.prod(part.shape) for part in ancestors(value))
    return max(1, LARGEST // max(largest, 1))


def _in_blocks(value: Gaussian, size: int) -> Array:
    """Return the variances of ``size`` features after the other."""
    count, xp = value.shape[value.axis or 0], namespace(value.mean)
    blocks = (slice(start, start + size) for start in range(0, count, size))
    parts = [diagonal(Sweep(of_features(value, block)).covariance()) for block in blocks]
    batch = batch_shape(value.shape, value.axis)
    wide = [xp.broadcast_to(part, (*batch, part.shape[-1])) for part in parts]
    return positive_part(from_features_last(xp.concat(wide, axis=-1), value.axis))


def joint(values: Sequence[Gaussian]) -> Array:
    """Return the covariance of values of one shape in each element, [*shape, K, K]."""
    joint_covariance = Sweep(of_elements(values)).covariance()
    shape = (*values[0].shape, len(values), len(values))
    return namespace(joint_covariance).broadcast_to(joint_covariance, shape)


def covariance(value: Gaussian) -> Array:
    """Return the covariance over the feature axis of a value, ``batch + [d, d]``."""
    joint_covariance = Sweep(of_features(value)).covariance()
    last = features_last(value.mean, value.axis)
    return namespace(joint_covariance).broadcast_to(joint_covariance, (*last.shape, last.shape[-1]))
