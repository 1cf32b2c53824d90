"""Chains of sticks, as in ``sticks``, of coordinates that depend on each other, by fixed points.

Their moments are integrals over as many dimensions as there are coordinates before a component:
products of Gauss-Hermite rules for two, a symmetric Sobol set for more, always the same points.

Measured beside 2¹⁸ scrambled Sobol points, the largest of ten random correlations and means, at
standard deviations of the coordinates of .3, 1 and 2: means of a simplex are off by 4e-5 of a
standard deviation in two dimensions, .002 in three and .004 in five, standard deviations by 4e-5,
.012 and .03; rows of a factor by .002, .003 and .02, and .014, .016 and .07.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import (
    Array,
    cast_clipped,
    constants,
    diagonal,
    diagonal_matrix,
    namespace,
    outer,
    to_float64,
)
from moment_calculus.numerics.quadrature import low_discrepancy

NODES = 32  # of a Gauss-Hermite rule in each of two dimensions
HALF = 2048  # points in more dimensions, each with its opposite
LEAST_VARIANCE = 1e-24  # added to variances, which may be zero


class Pieces(NamedTuple):
    """What a chain takes and leaves at points x, each [..., k]."""

    taken: Array  # f(x)
    left: Array  # g(x)
    slope: Array  # f′(x)
    relative_slope: Array  # g′(x) / g(x)


def moments_by_points(
    mean: Array, covariance: Array, pieces: Callable[[Array], Pieces]
) -> tuple[Array, Array, Array]:
    """Return means [..., k + 1], covariances and expected derivatives by x [..., k]."""
    xp, like, size = namespace(mean), mean, mean.shape[-1]
    mean, covariance = to_float64(mean), to_float64(covariance)
    nodes, weights = standard_points(size)
    root = regular_root(covariance)
    points = mean[..., None, :] + constants(nodes, mean) @ root.mT  # [..., n, k]
    values, slopes = chain_at(pieces(points))
    weight = constants(weights, mean)
    means = xp.sum(weight[:, None] * values, axis=-2)
    deviation = values - means[..., None, :]
    spread = (deviation * weight[:, None]).mT @ deviation
    expected = xp.sum(weight[:, None, None] * slopes, axis=-3)
    means, spread, expected = (cast_clipped(part, like) for part in (means, spread, expected))
    return means, spread, expected


def regular_root(covariance: Array) -> Array:
    """Return the Cholesky factor of a covariance that may be singular."""
    lift = diagonal_matrix(diagonal(covariance) * 0 + LEAST_VARIANCE)
    return namespace(covariance).linalg.cholesky(covariance + lift)


def chain_at(parts: Pieces) -> tuple[Array, Array]:
    """Return the components [..., k + 1] and their derivatives [..., k + 1, k] at points."""
    xp, size = namespace(parts.taken), parts.taken.shape[-1]
    one = 0 * parts.taken[..., :1] + 1
    before = xp.concat([one, xp.cumulative_prod(parts.left, axis=-1)], axis=-1)
    values = before * xp.concat([parts.taken, one], axis=-1)
    below = constants(np.tri(size + 1, size, -1), parts.taken)
    own = constants(np.eye(size + 1, size), parts.taken)
    slopes = below * outer(values, parts.relative_slope)
    return values, slopes + own * (before[..., :-1] * parts.slope)[..., None, :]


@cache
def standard_points(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points [n, k] and weights of a standard normal vector."""
    if size > 2:
        return _low_discrepancy(size)
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[nodes] * size, indexing="ij"), -1).reshape(-1, size)
    return grid, np.prod(np.meshgrid(*[weights] * size, indexing="ij"), 0).ravel()


def _low_discrepancy(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a fixed set of points with its mirror image, whose covariance is made the identity."""
    half = low_discrepancy(HALF, size)
    points = np.concatenate([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    return np.linalg.solve(root, points.T).T, np.full(len(points), 1 / len(points))
