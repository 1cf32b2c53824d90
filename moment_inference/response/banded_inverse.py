"""The inverse Hessian of a Gaussian with blocks, by moments of neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import splu

from moment_inference.errors import Indefinite
from moment_inference.optimisation.local_coordinates.moments import Band, Neighbourly
from moment_inference.optimisation.natural_newton import Neighbourhood, Product
from moment_inference.response.solvers import STRUCTURE_TOLERANCE

MOST_PRODUCTS = 200  # for the whole Hessian
COLOURS = 3  # of blocks, so that of one colour none has two neighbours
ENTRIES = 2**23  # most numbers of solutions at once


class BandedInverse:
    """A⁻¹ by a factorisation of the Hessian by moments, which has a band and a border."""

    is_iterative = False

    def __init__(self, moments: Neighbourly, hessian: scipy.sparse.csc_array) -> None:
        self._moments = moments
        natural = {"permc_spec": "NATURAL", "diag_pivot_thresh": 0.0}
        self._factors = splu(hessian, **natural, options={"SymmetricMode": True})
        self._pivots = self._factors.U.diagonal()
        if not (worst := float(self._pivots.min(initial=np.inf))) > 0:
            column = self._factors.L[:, [int(self._pivots.argmin())]].toarray()[:, 0]
            raise Indefinite(worst, moments.step(self._factors.solve(worst * column)))

    @classmethod
    def of(cls, around: Neighbourhood, precision: float) -> BandedInverse | None:
        """Return the inverse of the Hessian around a Gaussian of blocks; None if it is no band."""
        moments = Neighbourly(around.map)
        times = lambda vector: moments.transposed(around.product(moments.step(vector)))  # noqa: E731
        hessian = _probed(times, moments)
        probe = np.random.default_rng(0).normal(size=moments.size)
        probe[moments.unused] = 0
        expected = times(probe)
        difference = float(np.linalg.norm(hessian @ probe - expected))
        if not difference <= max(STRUCTURE_TOLERANCE, precision**0.5) * np.linalg.norm(expected):
            return None
        unused = scipy.sparse.dia_array((moments.unused_ones[None], [0]), shape=hessian.shape)
        return cls(moments, (hessian + unused).tocsc())

    def solve(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, n] times A⁻¹."""
        columns = np.stack([self._moments.transposed(row) for row in rows], 1)
        return np.stack([self._moments.step(row) for row in self._factors.solve(columns).T])

    def solve_ignoring_flat(self, rows: np.ndarray) -> np.ndarray:
        """Return the same as ``solve``: no direction is flat."""
        return self.solve(rows)

    def draws(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Return draws from N(0, A⁻¹), [count, n]."""
        noise = generator.normal(size=[len(self._pivots), count])
        columns = self._factors.solve(self._factors.L @ (np.sqrt(self._pivots)[:, None] * noise))
        return np.stack([self._moments.step(row) for row in columns.T])

    def variances_of_means(self) -> np.ndarray:
        """Return those of the means of all coordinates, part by part."""
        means, result = self._moments.means(), list[np.ndarray]()
        batch = max(1, ENTRIES // means.shape[1])
        for start in range(0, means.shape[0], batch):
            columns = means[start : start + batch].toarray().T
            result.append((columns * self._factors.solve(columns)).sum(0))
        return np.concatenate(result)


def pays(around: Neighbourhood) -> bool:
    """Return whether the whole Hessian takes few products."""
    moments = Neighbourly(around.map)
    of_bands = (band.places.shape[1] * _colours(band) for band in moments.bands)
    products = sum(of_bands) + len(moments.border)
    return bool(moments.bands) and products <= min(MOST_PRODUCTS, moments.size // 2)


def _colours(band: Band) -> int:
    return COLOURS if band.is_chain else 1


def _probed(product: Product, moments: Neighbourly) -> scipy.sparse.csr_array:
    """Return the Hessian by products with all blocks of a colour at once, and with the border."""
    entries = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
    for band in moments.bands:
        for colour in range(_colours(band)):
            for column in band.places[colour :: _colours(band)].T:
                direction = np.zeros(moments.size)
                direction[column] = 1
                entries += _of_band(product(direction), band, colour, column)
    for place in moments.border:
        direction = np.zeros(moments.size)
        direction[place] = 1
        image, every = product(direction), np.arange(moments.size)
        inside = every < moments.border[0]
        entries.append((image, every, np.full(moments.size, place)))
        entries.append((image[inside], np.full(inside.sum(), place), every[inside]))
    values, rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
    shape = (moments.size, moments.size)
    matrix = scipy.sparse.coo_array((values, (rows, columns)), shape=shape).tocsr()
    return (matrix + matrix.T) / 2


def _of_band(
    image: np.ndarray, band: Band, colour: int, column: np.ndarray
) -> Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return values, rows and columns of the Hessian, from its image of one column a block."""
    result = []
    blocks = colour + _colours(band) * np.arange(len(column))
    for step in (-1, 0, 1) if band.is_chain else (0,):
        is_inside = (blocks + step >= 0) & (blocks + step < len(band.places))
        rows = band.places[blocks[is_inside] + step]
        columns = np.broadcast_to(column[is_inside][:, None], rows.shape)
        result.append((image[rows].ravel(), rows.ravel(), columns.ravel()))
    return result
