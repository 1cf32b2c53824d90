"""A log density of a few variables between the points where it is known: integrals, marginals."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.interpolate import make_interp_spline
from scipy.ndimage import label, maximum_filter, minimum_position
from scipy.special import logsumexp

SHALLOW = 12.0  # nats below the best up to which values are kept as they are
SLICE_POINTS = {1: 1, 2: 121, 3: 25, 4: 13, 5: 9}  # a direction across the marginal's own
TABLE_POINTS = {1: 401, 2: 161, 3: 61, 4: 41, 5: 41}  # along it
CHUNK = 200_000  # evaluations at once
FINE = 401  # points of a finished table
DEPTH_OF_MODES = 8.0  # nats below the best at which another maximum no longer matters
PROMINENCE = 0.3  # nats between a second maximum and the saddle


class Table(NamedTuple):
    """A normalised log density [n] at increasing equispaced points [n]."""

    points: np.ndarray
    log_density: np.ndarray


class Cells(NamedTuple):
    """Log densities [n] in the middle of equal cells, at coordinates [n, h]."""

    coordinates: np.ndarray
    values: np.ndarray
    widths: np.ndarray  # [h] of a cell, in coordinates

    def support(self) -> np.ndarray:
        """Return the coordinates [m, h] that cover where the density is."""
        return self.coordinates[self.values > self.values.max() - SHALLOW]


class Surface(Protocol):
    """What values at the points of a design say about the density, in coordinates z [h].

    Theta is ``origin + axes z``.
    """

    @property
    def origin(self) -> np.ndarray:
        """Theta [h] where z is zero."""

    @property
    def axes(self) -> np.ndarray:
        """The directions of z, columns [h, h]."""

    @property
    def log_evidence(self) -> float:
        """The log of the integral over theta."""

    @property
    def spacing_error(self) -> float:
        """The predicted error of the log evidence, nats, by how far apart the points are."""

    @property
    def edge_mass(self) -> float:
        """The share of the mass beyond the points."""

    @property
    def weights(self) -> np.ndarray:
        """Shares of the mass [g] of the design's points."""

    @property
    def peaks(self) -> np.ndarray:
        """Coordinates [m, h] of maxima that saddles keep apart, the highest first."""

    def log_density(self, coordinates: np.ndarray) -> np.ndarray:
        """Return log densities [n] at coordinates [n, h], minus infinity outside.

        Args:
            coordinates: [n, h], in standard deviations from the origin along the axes.
        """

    @property
    def cells(self) -> Cells:
        """Cells that cover the design."""


def compressed(drops: np.ndarray) -> np.ndarray:
    """Return nats below the best, those beyond SHALLOW drawn together smoothly."""
    beyond = np.maximum(drops - SHALLOW, 0.0) / 4
    return np.minimum(drops, SHALLOW) + 4 * np.log1p(beyond)


def marginal_table(surface: Surface, number: int) -> Table:
    """Return the marginal of a coordinate of theta, by integrals over slices across it.

    In coordinates rotated so that the first runs along the marginal's gradient the slices of a
    Gaussian are round and alike, so that the trapezoidal rule is exact with few points.
    """
    size = len(surface.origin)
    gradient = surface.axes[number]
    scale = np.linalg.norm(gradient)
    rotation = _rotation(gradient / scale)
    low, high = _box(surface.cells.support() @ rotation)
    along = np.linspace(low[0], high[0], TABLE_POINTS[size])
    across, cell = _across(low[1:], high[1:], SLICE_POINTS[size])
    values = np.concatenate(
        [
            _slices(surface, rotation, places, across)
            for places in np.array_split(along, _chunks(len(along) * len(across)))
        ]
    )
    points = surface.origin[number] + scale * along
    return normalised(points, values + np.log(cell))


def _chunks(count: int) -> int:
    """Return into how many parts so many evaluations are divided."""
    return 1 + count // CHUNK


def _rotation(direction: np.ndarray) -> np.ndarray:
    """Return an orthogonal matrix whose first column is a direction of length one."""
    columns = np.linalg.qr(np.column_stack([direction, np.eye(len(direction))]))[0]
    return columns * np.where(np.arange(len(direction)) == 0, np.sign(columns[:, 0] @ direction), 1)


def _box(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and largest coordinates."""
    return points.min(axis=0), points.max(axis=0)


def _across(low: np.ndarray, high: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Return a lattice [n, h - 1] across a marginal, and the volume of its cells."""
    levels = [np.linspace(*ends, count) for ends in zip(low, high, strict=True)]
    mesh = np.meshgrid(*levels, indexing="ij")
    points = np.stack([part.ravel() for part in mesh], axis=1) if mesh else np.zeros((1, 0))
    return points, float(np.prod((high - low) / (count - 1))) if len(low) else 1.0


def _slices(
    surface: Surface, rotation: np.ndarray, places: np.ndarray, across: np.ndarray
) -> np.ndarray:
    """Return logs of the density's integrals over slices, up to the volume of a cell."""
    shape = (len(places), len(across))
    first = np.broadcast_to(places[:, None, None], (*shape, 1))
    turned = np.concatenate([first, np.broadcast_to(across, (*shape, across.shape[1]))], axis=2)
    values = surface.log_density((turned @ rotation.T).reshape(-1, len(rotation)))
    return logsumexp(values.reshape(shape), axis=1)


def normalised(points: np.ndarray, values: np.ndarray) -> Table:
    """Return a fine table of a log density that integrates to one, from a coarse one."""
    kept = np.flatnonzero(np.isfinite(values))
    points, values = points[kept[0] : kept[-1] + 1], values[kept[0] : kept[-1] + 1]
    values = np.where(np.isfinite(values), values, values.max() - 50)
    fine = np.linspace(points[0], points[-1], FINE)
    dense = make_interp_spline(points, values, k=min(5, len(points) - 1 - len(points) % 2))(fine)
    return Table(fine, dense - log_trapezoid(fine, dense))


def log_trapezoid(points: np.ndarray, values: np.ndarray) -> float:
    """Return the log of the integral of an exponentiated table."""
    best = np.max(values)
    return float(best + np.log(np.trapezoid(np.exp(values - best), points)))


def find_hills(values: np.ndarray) -> list[int]:
    """Return flat numbers of maxima of a lattice of log densities that saddles keep apart.

    They are the tops of the hills that stand apart at one level, the one at which most do; a hill
    counts if it stands out by PROMINENCE.
    """
    drops = values.max() - values
    best = [int(np.argmin(drops))]
    tops = (maximum_filter(values, 3, mode="nearest") == values) & (drops < DEPTH_OF_MODES)
    if np.count_nonzero(tops) == 1:
        return best
    neighbours = np.ones((3,) * values.ndim)
    for level in np.arange(PROMINENCE, DEPTH_OF_MODES, PROMINENCE / 2):
        labels, count = label(drops <= level, neighbours)
        tops = minimum_position(drops, labels, range(1, count + 1))
        high = [top for top in tops if drops[top] <= level - PROMINENCE]
        if len(high) > len(best):
            best = [int(np.ravel_multi_index(top, values.shape)) for top in high]
    return sorted(best, key=lambda flat: drops.flat[flat])
