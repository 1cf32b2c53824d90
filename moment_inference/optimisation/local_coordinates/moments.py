"""Moments of neighbours in place of local coordinates: where the Hessian of a loss has few others.

A loss is a sum of functions of the moments of a block, of the one before it and of the shared
coordinates, and so is the entropy. By E y, E y uᵀ, E y yᵀ and E y_t y_{t−1}ᵀ of the blocks of a
chain its Hessian is zero but among neighbours, and beside the shared coordinates. For blocks that
are independent the local coordinates themselves are such moments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse

from moment_inference.optimisation.local_coordinates.map import LocalMap
from moment_inference.optimisation.local_coordinates.parts import (
    ROOT,
    Coordinates,
    Origin,
    symmetric,
)


class Band(NamedTuple):
    """Moments of the blocks of one plate."""

    places: np.ndarray  # among all, [blocks, m]
    is_chain: bool  # whether those of neighbours meet in the Hessian


class Neighbourly:
    """The moments around a Gaussian, as one vector: of all plates, then of what they share."""

    def __init__(self, local: LocalMap) -> None:
        self._map, self._origins = local, local.parts[1:]
        (shared, _), *others = zip(local.parts, local.elements, strict=True)
        self.bands, start = list[Band](), 0
        for origin, (rows, *_) in others:
            blocks, width = origin.part.mean.shape
            count = blocks * (each := width + len(rows) + width**2 * (len(origin.part.links) > 0))
            places = start + np.arange(count).reshape(blocks, each)
            self.bands.append(Band(places, len(origin.part.links) > 0))
            start += count
        self.border = np.arange(start, start + local.size - sum(map(_size, others)))
        self.size = start + len(self.border)
        self._shared = shared.part.mean.size

    @property
    def unused_ones(self) -> np.ndarray:
        """Return ones at the places that are not used, and zeros, for the diagonal."""
        result = np.zeros(self.size)
        result[self.unused] = 1
        return result

    @property
    def unused(self) -> np.ndarray:
        """Return the places of moments of the first block of a chain with none before it."""
        parts = [
            band.places[0, -(origin.part.mean.shape[1] ** 2) :]
            for band, origin in zip(self.bands, self._origins, strict=True)
            if band.is_chain
        ]
        return np.concatenate([np.zeros(0, int), *parts])

    def step(self, moments: np.ndarray) -> np.ndarray:
        """Return the local coordinates of moments."""
        parts, t = self._map.split(np.zeros(self._map.size))
        for at, (band, origin) in enumerate(zip(self.bands, self._origins, strict=True)):
            parts[at + 1] = _coordinates(origin, moments[band.places])
        whole = self._map.joined(parts, t)
        whole[self._own] = moments[self.border]
        return whole

    def transposed(self, step: np.ndarray) -> np.ndarray:
        """Return the transpose of ``step`` times local coordinates."""
        result, parts = np.empty(self.size), self._map.split(step)[0]
        result[self.border] = step[self._own]
        for band, origin, part in zip(self.bands, self._origins, parts[1:], strict=True):
            result[band.places] = _transposed(origin, part)
        return result

    @property
    def _own(self) -> np.ndarray:
        """Return where the border is among the local coordinates: first and last."""
        count = len(self.border) - len(self._map.units)
        size = self._map.size
        return np.concatenate([np.arange(count), np.arange(size - len(self._map.units), size)])

    def means(self) -> scipy.sparse.csr_array:
        """Return how the means of all coordinates change with the moments, part by part."""
        shared = self.border[: self._shared]
        rows = [_rows(self._map.parts[0].root, np.zeros(1, int)[:, None] + shared, self.size)]
        for band, origin in zip(self.bands, self._origins, strict=True):
            width = origin.part.mean.shape[1]
            own = (
                np.broadcast_to(np.eye(width), origin.root.shape) if band.is_chain else origin.root
            )
            blocks = np.concatenate([origin.slope, own], -1)
            beside = np.broadcast_to(shared, (len(blocks), len(shared)))
            places = np.concatenate([beside, band.places[:, :width]], 1)
            rows.append(_rows(blocks, places, self.size))
        return scipy.sparse.csr_array(scipy.sparse.vstack(rows))


def _size(part: tuple[Origin, tuple]) -> int:
    """Return the number of local coordinates of a part."""
    origin, (rows, *_) = part
    return origin.part.mean.size + len(origin.part.mean) * len(rows) + origin.part.links.size


def _rows(blocks: np.ndarray, places: np.ndarray, size: int) -> scipy.sparse.csr_array:
    """Return the rows of blocks [n, k, w] whose columns are at places [n, w]."""
    count, width, wide = blocks.shape
    columns = np.broadcast_to(places[:, None], blocks.shape)
    ends = np.arange(count * width + 1) * wide
    return scipy.sparse.csr_array((blocks.ravel(), columns.ravel(), ends), (count * width, size))


def _coordinates(origin: Origin, moments: np.ndarray) -> Coordinates:
    """Return the local coordinates of blocks, from their moments [blocks, m]."""
    part, links = origin.part, origin.part.links
    blocks, width = part.mean.shape
    shared = part.root.shape[2] - width
    first = moments[:, :width]
    if not len(links):
        rows, columns = np.tril_indices(width, shared, shared + width)
        b: np.ndarray = np.zeros(part.root.shape)
        b[:, rows, columns] = moments[:, width:] / np.where(columns == shared + rows, 1, ROOT)
        own = b[:, :, shared:]
        own += np.tril(own, -1).mT
        return Coordinates(first, b, part.links)
    beside = moments[:, width : width * (1 + shared)].reshape(blocks, width, shared)
    rows, columns = np.tril_indices(width)
    second = np.zeros([blocks, width, width])
    end = width * (1 + shared)
    second[:, rows, columns] = moments[:, end : end + len(rows)]
    second += np.tril(second, -1).mT
    across = moments[1:, end + len(rows) :].reshape(-1, width, width)
    inverse = np.linalg.inv(origin.root)
    moves = np.concatenate([first[..., None], beside], -1)
    moves = inverse @ origin.chain.remainders(moves)
    c = inverse[1:] @ (across - links @ second[:-1]) @ np.linalg.inv(origin.before).mT
    within = second.copy()
    within[1:] += links @ second[:-1] @ links.mT - 2 * symmetric(across @ links.mT)
    own = inverse @ within @ inverse.mT / ROOT
    return Coordinates(moves[..., 0], np.concatenate([moves[..., 1:] / ROOT, own], -1), c)


def _transposed(origin: Origin, part: Coordinates) -> np.ndarray:
    """Return the transpose of ``_coordinates`` times coordinates, [blocks, m]."""
    links = origin.part.links
    blocks, width = origin.part.mean.shape
    shared = origin.part.root.shape[2] - width
    if not len(links):
        rows, columns = np.tril_indices(width, shared, shared + width)
        lengths = np.where(columns == shared + rows, 1, ROOT)
        return np.concatenate([part.a, part.b[:, rows, columns] * lengths], 1)
    inverse = np.linalg.inv(origin.root)
    moves = inverse.mT @ part.beside
    moves[:-1] -= links.mT @ moves[1:]
    within = inverse.mT @ part.b[..., shared:] @ inverse / ROOT
    across = inverse[1:].mT @ part.c @ np.linalg.inv(origin.before)
    second = within.copy()
    second[:-1] += links.mT @ within[1:] @ links - symmetric(links.mT @ across)
    across = np.concatenate([np.zeros([1, width, width]), across - 2 * within[1:] @ links])
    rows, columns = np.tril_indices(width)
    lower = second[:, rows, columns] * np.where(rows == columns, 1, 2)
    pieces = [moves[..., 0], moves[..., 1:], lower, across]
    return np.concatenate([piece.reshape(blocks, -1) for piece in pieces], 1)
