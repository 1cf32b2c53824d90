"""The blocks of a chain: from their local coordinates to their distribution, and back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve_banded, cholesky_banded

from moment_inference.optimisation.local_coordinates.parts import (
    LEAST_EIGENVALUE,
    Coordinates,
    Origin,
    Relative,
    symmetric,
)


class Neighbours(NamedTuple):
    """How blocks of a chain lean on those before, given the shared coordinates."""

    moves: np.ndarray  # E y beside its slope by the shared u, of the blocks before
    covariance: np.ndarray  # Z, of the blocks before
    cross: np.ndarray  # N, of w with the block before
    gain: np.ndarray  # K = N Z⁻¹


def neighbours(origin: Origin, coordinates: Coordinates, moves: np.ndarray) -> Neighbours:
    """Return how blocks lean on those before; moves are E w beside its slope by u."""
    root, link = origin.root, origin.chain.links
    through = coordinates.c @ origin.before.mT  # E w yᵀ with the block before
    second = root @ coordinates.moments @ root.mT
    ahead = link @ through.mT @ root[1:].mT
    second = np.concatenate([second[:1], second[1:] + ahead + ahead.mT])
    of_y = origin.chain.solve(root @ moves)
    covariance = (origin.chain.covariances(second) - of_y @ of_y.mT)[:-1]
    before = of_y[:-1]
    cross = through - moves[1:] @ before.mT
    return Neighbours(before, covariance, cross, np.linalg.solve(covariance, cross.mT).mT)


def by_neighbours(
    origin: Origin,
    moves: np.ndarray,
    found: Neighbours,
    by_moments: np.ndarray,
    by_gain: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return derivatives by moves, E w wᵀ and C from those by the covariance of w given y, and K.

    They are what is added to those of blocks that lean on no other.
    """
    root, chain, gain = origin.root, origin.chain, found.gain
    ratio = np.linalg.solve(found.covariance, by_gain.mT).mT
    by_cross = ratio - 2 * by_moments[1:] @ gain
    by_covariance = gain.mT @ by_moments[1:] @ gain - symmetric(gain.mT @ ratio)
    none = np.zeros_like(by_moments[:1])
    second = chain.covariances_transposed(np.concatenate([by_covariance, none]))
    within = root.mT @ second @ root
    by_through = by_cross + 2 * root[1:].mT @ second[1:] @ chain.links
    by_before = -by_cross.mT @ moves[1:] - 2 * by_covariance @ found.moves
    by_y = np.concatenate([by_before, np.zeros_like(moves[:1])])
    by_moves = root.mT @ chain.solve_transposed(by_y)
    by_moves[1:] -= by_cross @ found.moves
    return by_moves, within, by_through @ origin.before


def by_precision(
    origin: Origin, coordinates: Coordinates
) -> tuple[Relative, np.ndarray, np.ndarray] | None:
    """Return a chain whose natural parameters are coordinates; None if there is none.

    With it, whose moves are those given u at the origin, the terms that it adds to the precision
    of u and of (1, u), [p, p] and [1, p].
    """
    links, chain = origin.chain.links, origin.chain
    own = np.linalg.inv(origin.root)  # w_t = own y_t − ahead y_{t−1}
    ahead, precision = own[1:] @ links, 2 * np.eye(own.shape[1]) - coordinates.moments
    added = coordinates.c @ np.linalg.inv(origin.before)
    diagonal = own.mT @ precision @ own
    diagonal[:-1] += ahead.mT @ precision[1:] @ ahead + 2 * symmetric(ahead.mT @ added)
    below = -own[1:].mT @ (precision[1:] @ ahead + added)
    terms = own.mT @ coordinates.beside
    terms[:-1] -= ahead.mT @ coordinates.beside[1:]
    try:
        band = cholesky_banded(_reversed_band(diagonal, below), lower=True)
    except np.linalg.LinAlgError:
        return None
    flat = terms.reshape(-1, terms.shape[-1])
    of_y = cho_solve_banded((band, True), flat[::-1])[::-1]
    root, link = _conditional(band, *own.shape[:2])
    relative = own @ root
    if not np.abs(relative).max() < LEAST_EIGENVALUE**-0.5:
        return None
    moves = own @ chain.remainders(of_y.reshape(terms.shape))
    gain = own[1:] @ (link - links)
    products = flat[:, 1:].T @ of_y
    return Relative(moves, relative, gain), products[:, 1:], products[:, 0]


def _reversed_band(diagonal: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return a block tridiagonal matrix in SciPy's lower form, its rows in the reverse order."""
    blocks, width = diagonal.shape[:2]
    size, places = blocks * width, np.arange(blocks * width).reshape(blocks, width)
    band = np.zeros([2 * width, size])
    for left in range(width):
        for right in range(width):
            if left <= right:
                band[right - left, size - 1 - places[:, right]] = diagonal[:, left, right]
            band[width + right - left, size - 1 - places[1:, right]] = below[:, right, left]
    return band


def _conditional(band: np.ndarray, blocks: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return roots and transitions of y from the factor of its precision, in the reverse order."""
    size, places = blocks * width, np.arange(blocks * width).reshape(blocks, width)
    own, other = np.zeros([2, blocks, width, width])
    for left in range(width):
        for right in range(width):
            if left <= right:
                own[:, right, left] = band[right - left, size - 1 - places[:, right]]
            other[1:, right, left] = band[width + right - left, size - 1 - places[1:, right]]
    root = np.linalg.inv(own)
    return root, -root[1:] @ other[1:]
