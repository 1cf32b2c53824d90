"""Arrays whose axes sum to zero: an isometry of as many coordinates less one along each axis."""

from __future__ import annotations

import math
from functools import cache, reduce

import numpy as np

from moment_calculus.numerics.arrays import Array, constants, namespace
from moment_calculus.operations.linear.maps import linear
from moment_calculus.operations.shapes.coordinates import Support
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian


def zero_sum_matrix(size: int) -> np.ndarray:
    """Return the map [size, size - 1] with orthonormal columns, each of which sums to zero."""
    root, others = math.sqrt(size), size - 1
    return np.vstack([np.eye(others) - 1 / (size + root), np.full((1, others), -1 / root)])


@cache
def zero_sum(rank: int) -> Support:
    """Return the support of arrays that sum to zero along each of their ``rank`` last axes."""

    def make(coordinates: Gaussian) -> Gaussian:
        shape = coordinates.shape
        batch, events = shape[: len(shape) - rank], shape[len(shape) - rank :]
        matrix = reduce(np.kron, [zero_sum_matrix(size + 1) for size in events])
        vector = reshape(coordinates, (*batch, math.prod(events)))
        image = linear(vector, constants(matrix, coordinates.mean))
        return reshape(image, (*batch, *(size + 1 for size in events)))

    def no_slope(coordinates: Gaussian) -> Array:
        mean = coordinates.mean
        return namespace(mean).sum(0.0 * mean, axis=tuple(range(-rank, 0)))

    return Support(make, no_slope, event_dim=rank)
