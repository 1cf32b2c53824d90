"""Chosen pairs out of matrices of pairs, as flat arrays, and back."""

from __future__ import annotations

import math

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace


def places(mask: Array) -> tuple[Array, Array, Array]:
    """Where a mask is set: among the pairs, the first variables and the second variables.

    Args:
        mask: [..., d, e], or anything if only the first of the results is wanted.

    Returns:
        Indices into the flattened mask, into flattened [..., d] and into flattened [..., e].
    """
    rows, columns = mask.shape[-2:] if mask.ndim > 1 else (1, math.prod(mask.shape))
    xp = namespace(mask)
    flat = xp.nonzero(xp.reshape(mask, (-1,)))[0]
    batch = flat // (rows * columns)
    return flat, flat // columns, batch * columns + flat % columns


def take(array: Array, shape: tuple[int, ...], place: Array) -> Array:
    """Elements at flat places of an array that is broadcast to a shape first.

    Args:
        array: anything broadcastable to the shape.
        shape: the shape.
        place: flat indices.
    """
    xp = namespace(array)
    return xp.take(xp.reshape(xp.broadcast_to(array, shape), (-1,)), place, axis=0)


def put(values: Array, mask: Array, otherwise: Array, *, symmetric: bool) -> Array:
    """Values where a mask is set, in its order; elsewhere those of another array.

    Args:
        values: as many as the mask has set.
        mask: [..., d, e]; above the diagonal only, if symmetric.
        otherwise: [..., d, e].
        symmetric: whether the values also go to the transposed places.
    """
    xp = namespace(values)
    counts = xp.cumulative_sum(xp.reshape(xp.astype(mask, xp.int64), (-1,)))
    place = xp.where(mask, xp.reshape(counts, mask.shape) - 1, xp.zeros_like(counts[0]))
    if symmetric:
        place, mask = place + place.mT, mask | mask.mT
    full = xp.reshape(xp.take(values, xp.reshape(place, (-1,)), axis=0), mask.shape)
    return xp.where(mask, full, otherwise)
