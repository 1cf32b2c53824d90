"""Layout of covariances: where the feature axis is, and the maps between steps on it."""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.arrays import Array
from moment_calculus.special import namespace

Jacobian = Callable[[Array], Array | None]  # None instead of an array: the covariance is not known


def features_last(array: Array, axis: int | None) -> Array:
    """Move the feature axis to the end; a batch of scalars gets a feature axis of size one."""
    if axis == -1:
        return array
    if axis is None:
        return array[..., None]
    return namespace(array).moveaxis(array, axis, -1)


def from_features_last(array: Array, axis: int | None) -> Array:
    """Undo :func:`features_last`."""
    if axis == -1:
        return array
    if axis is None:
        return array[..., 0]
    return namespace(array).moveaxis(array, -1, axis)


def batch_shape(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    """Shape without the feature axis."""
    if axis is None:
        return shape
    position = len(shape) + axis
    return shape[:position] + shape[position + 1 :]


def gain_map(gain: Array, axis: int | None) -> Jacobian:
    """The map of an elementwise step with expected derivative ``gain``, of the result's shape."""
    return lambda cross: features_last(gain, axis)[..., :, None] * cross


def identity_map(cross: Array) -> Array:
    """The map of a step that leaves the components as they are."""
    return cross
