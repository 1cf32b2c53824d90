"""Layout of covariances: where the feature axis is, and the maps between steps on it."""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace
from moment_calculus.refusals.errors import UnsupportedMoments

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


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of an elementwise operation on operands of these shapes.

    Raises:
        UnsupportedMoments: if the shapes do not broadcast.
    """
    first = shapes[0]
    if all(shape == first or shape == () for shape in shapes):
        return first
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    result = tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))
    if any(n not in (1, m) for shape in padded for n, m in zip(shape, result, strict=True)):
        raise UnsupportedMoments(
            f"operands of shapes {', '.join(map(str, shapes))} do not broadcast",
            remedy="give the operands axes of size one where they lack an axis",
        )
    return result


def broadcasts_to(wide: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether an array of one shape can be expanded to another.

    Args:
        wide: the other shape.
        shape: of the array.

    Raises:
        UnsupportedMoments: if the shapes do not broadcast at all.
    """
    wide = tuple(wide)
    return len(shape) <= len(wide) and broadcast_shape(wide, tuple(shape)) == wide


def gain_map(gain: Array, axis: int | None) -> Jacobian:
    """The map of an elementwise step with expected derivative ``gain``, of the result's shape."""
    return lambda cross: features_last(gain, axis)[..., :, None] * cross


def identity_map(cross: Array) -> Array:
    """The map of a step that leaves the components as they are."""
    return cross
