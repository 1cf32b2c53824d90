"""Layout of covariances: the feature axis, and shapes that broadcast."""

from __future__ import annotations

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace


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
    return next((len(batch) - place for place, size in enumerate(batch) if size > 1), 0)


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to; UnsupportedMoments if they do not."""
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


def broadcasts_to(shape: tuple[int, ...], wide: tuple[int, ...]) -> bool:
    """Return whether ``shape`` expands to ``wide``; UnsupportedMoments if they do not broadcast."""
    wide = tuple(wide)
    return len(shape) <= len(wide) and broadcast_shape(wide, tuple(shape)) == wide


def rows_scaled(cross: Array, gain: Array, axis: int | None) -> Array:
    """Return the covariance ``batch + [d, e]`` after an elementwise step of derivative ``gain``."""
    return features_last(gain, axis)[..., :, None] * cross
