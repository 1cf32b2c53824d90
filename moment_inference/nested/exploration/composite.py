"""A composite design for three to five hyperparameters: lines along axes, corners of faces, cubes.

The fit is ``f(z) = f(0) + sum_k f_k(z_k) + sum_kl f_kl + sum_klm f_klm``: a spline along each
axis, the four products of first and second powers for each pair, which its four corners determine,
and one product for each triple, by least squares at the corners of the cube. Exact to 1e-4 in total
variation without interactions in these axes; mixed logs of Gammas (shapes 3 to 20): .004 to .010;
curved or with long tails: .02 to .07. The predicted error of the evidence tells them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.spatial import cKDTree
from scipy.special import logsumexp

from moment_inference.nested.exploration.extent import DEPTH, Extent
from moment_inference.nested.exploration.lattice import tail
from moment_inference.nested.exploration.mode import Evaluate, finite
from moment_inference.nested.exploration.surface import Cells, compressed, find_hills

FRACTIONS = np.array([-1.0, -0.75, -0.5, -0.25, 0.25, 0.5, 0.75, 1.0])  # of the reach
BEYOND = 1.12  # of the reach at DEPTH: 10 nats of a Gaussian
FACE, CUBE = 1.5, 1.1  # corners, in standard deviations to their sides
BOUND = 3.0  # standard deviations beyond which products no longer grow
LEVELS = {3: 25, 4: 15, 5: 11}  # of the lattice on which the fit is integrated
EDGE, GROWTH, ROUNDS = 1e-4, 1.3, 4
ABOVE = 1.0  # nats above the best value up to which the fit is kept
NEGLIGIBLE = 20.0  # nats below the best of points without a weight
TILTS = 50


@dataclass(frozen=True)
class Composite:
    """The points of a composite design, in coordinates z, theta = origin + axes z."""

    origin: np.ndarray
    axes: np.ndarray  # [h, h]
    reach: np.ndarray  # [h, 2] standard deviations
    scales: np.ndarray  # [h, 2] to the left and right

    @cached_property
    def lines(self) -> list[np.ndarray]:
        """Coordinates [9] along each axis, the centre in the middle."""
        return [
            np.concatenate([FRACTIONS[:4] * left, [0.0], FRACTIONS[4:] * right])
            for left, right in self.reach
        ]

    @cached_property
    def pairs(self) -> list[tuple[int, ...]]:
        """The faces' axes."""
        return list(combinations(range(len(self.origin)), 2))

    @cached_property
    def faces(self) -> np.ndarray:
        """Coordinates [4 p, h] of the corners of all faces."""
        signs = np.zeros((len(self.pairs), 4, len(self.origin)))
        for row, pair in zip(signs, self.pairs, strict=True):
            row[:, pair] = list(product((-1, 1), repeat=2))
        return FACE * self._sided(signs.reshape(-1, len(self.origin)))

    @cached_property
    def cube(self) -> np.ndarray:
        """Coordinates [2^h, h] of the corners of a cube."""
        return CUBE * self._sided(np.array(list(product((-1, 1), repeat=len(self.origin)))))

    def _sided(self, signs: np.ndarray) -> np.ndarray:
        """Return signs times the scale to that side."""
        return np.where(signs < 0, -self.scales[:, 0], self.scales[:, 1]) * np.abs(signs)

    @cached_property
    def coordinates(self) -> np.ndarray:
        """Coordinates [g, h]: the centre, the lines, the faces, the cube."""
        size = len(self.origin)
        lines = [np.outer(np.delete(line, 4), np.eye(size)[k]) for k, line in enumerate(self.lines)]
        return np.concatenate([np.zeros((1, size)), *lines, self.faces, self.cube])

    @property
    def points(self) -> np.ndarray:
        """Hyperparameters [g, h]."""
        return self.origin + self.coordinates @ self.axes.T

    def surface(self, values: np.ndarray) -> CompositeSurface:
        """Return what log densities [g] at the points say."""
        return CompositeSurface(self, values)


def build_composite(evaluate: Evaluate, extent: Extent) -> tuple[Composite, np.ndarray]:
    """Return a design over an extent, wider where its edge has mass, and log densities [g]."""
    reach, mode = BEYOND * extent.reach, extent.mode
    for _ in range(ROUNDS):
        design = Composite(mode.point, mode.axes, reach, extent.scales)
        values = finite(evaluate, design.points)
        edges = design.surface(values).edges > EDGE
        if not edges.any():
            break
        reach = np.where(edges, GROWTH, 1.0) * reach
    return design, values


@dataclass(frozen=True)
class CompositeSurface:
    """The fit to log densities at the points of a composite design."""

    design: Composite
    values: np.ndarray  # [g]

    @property
    def origin(self) -> np.ndarray:
        """Where the coordinates are zero."""
        return self.design.origin

    @property
    def axes(self) -> np.ndarray:
        """The directions of the coordinates."""
        return self.design.axes

    @cached_property
    def _splines(self) -> list[BSpline]:
        """Log densities less the centre's along each axis."""
        lines = self.values[1 : 1 + 8 * len(self.origin)].reshape(-1, 8)
        return [
            make_interp_spline(line, -compressed(_filled(self.values[0] - values)), k=5)
            for line, values in zip(self.design.lines, lines, strict=True)
        ]

    def _along(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the sum [n] of the axes' parts, and the centre's."""
        parts = [spline(coordinates[:, k]) for k, spline in enumerate(self._splines)]
        return self.values[0] + np.sum(parts, axis=0)

    @cached_property
    def _pairs(self) -> np.ndarray:
        """Coefficients [p, 4] of the products of each pair."""
        start = 1 + 8 * len(self.origin)
        corners = self.design.faces
        values = self.values[start : start + len(corners)]
        rests = _finite_or_zero(values - self._along(corners)).reshape(-1, 4)
        bounded = _bounded(corners).reshape(len(rests), 4, -1)
        return np.array(
            [
                np.linalg.solve(_products(points[:, pair[0]], points[:, pair[1]]), rest)
                for points, pair, rest in zip(bounded, self.design.pairs, rests, strict=True)
            ]
        )

    def _with_pairs(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the fit [n] without triples."""
        total, columns = self._along(coordinates), _bounded(coordinates).T.copy()
        for (first, second), factors in zip(self.design.pairs, self._pairs, strict=True):
            x, y = columns[first], columns[second]
            total += x * y * (factors[0] + factors[1] * x + y * (factors[2] + factors[3] * x))
        return total

    @cached_property
    def _triples(self) -> tuple[np.ndarray, float]:
        """Coefficients of the products of triples, and what stays at the cube's corners, nats."""
        corners = self.design.cube
        rest = _finite_or_zero(self.values[-len(corners) :] - self._with_pairs(corners))
        columns = _triple_products(_bounded(corners))
        factors = np.linalg.lstsq(columns, rest, rcond=None)[0]
        return factors, float(np.sqrt(np.mean((rest - columns @ factors) ** 2)))

    def log_density(self, coordinates: np.ndarray) -> np.ndarray:
        """Return log densities [n] at coordinates [n, h], minus infinity outside of the box."""
        left, right = -self.design.reach[:, 0], self.design.reach[:, 1]
        inside = ((coordinates >= left) & (coordinates <= right)).all(axis=1)
        return np.where(inside, self._fit(np.clip(coordinates, left, right)), -np.inf)

    def _fit(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the fit [n], cut where it is far above all values known."""
        triples = _triple_products(_bounded(coordinates)) @ self._triples[0]
        return np.minimum(self._with_pairs(coordinates) + triples, self._ceiling)

    @property
    def _ceiling(self) -> float:
        """Where the fit is cut."""
        return float(np.max(self.values)) + ABOVE

    @cached_property
    def cells(self) -> Cells:
        """A lattice over the box, and the fit on it."""
        count = LEVELS[len(self.origin)]
        levels = [np.linspace(-left, right, count) for left, right in self.design.reach]
        mesh = np.meshgrid(*levels, indexing="ij")
        coordinates = np.stack([part.ravel() for part in mesh], axis=1)
        widths = self.design.reach.sum(axis=1) / (count - 1)
        return Cells(coordinates, self._fit(coordinates), widths)

    @property
    def log_evidence(self) -> float:
        """The log integral of the fit."""
        log_cell = np.log(self.cells.widths).sum() + np.linalg.slogdet(self.axes)[1]
        return float(logsumexp(self.cells.values) + log_cell)

    @property
    def spacing_error(self) -> float:
        """What the triples change, what stays at the cube's corners, the share that is cut."""
        factors, rest = self._triples
        coordinates, values, _ = self.cells
        total = logsumexp(values)
        without = logsumexp(values - _triple_products(_bounded(coordinates)) @ factors)
        cut = np.exp(values[values >= self._ceiling] - total).sum()
        return abs(float(total - without)) + rest + float(cut)

    @cached_property
    def edges(self) -> np.ndarray:
        """Shares of the mass [h, 2] beyond the first and the last level, if it falls as before."""
        size = len(self.origin)
        mass = np.exp(self.cells.values - logsumexp(self.cells.values))
        mass = mass.reshape((LEVELS[size],) * size)
        sums = [mass.sum(axis=tuple(np.delete(np.arange(size), axis))) for axis in range(size)]
        return np.array([[tail(part), tail(part[::-1])] for part in sums])

    @property
    def edge_mass(self) -> float:
        """The share of the mass beyond the box."""
        return float(self.edges.sum())

    @cached_property
    def weights(self) -> np.ndarray:
        """Shares [g]: the mass nearest to each point, tilted to the mean and covariance."""
        coordinates, values, _ = self.cells
        counts = values > values.max() - NEGLIGIBLE
        mass = np.exp(values[counts] - logsumexp(values[counts]))
        points = self.design.coordinates
        nearest = cKDTree(points).query(coordinates[counts])[1]
        shares = np.bincount(nearest, weights=mass, minlength=len(points))
        return _tilted(shares, _moments(points), mass @ _moments(coordinates[counts]))

    @cached_property
    def peaks(self) -> np.ndarray:
        """Coordinates [m, h] of maxima along the axis that has most."""
        found = [np.zeros((1, len(self.origin)))]
        for axis, (line, spline) in enumerate(zip(self.design.lines, self._splines, strict=True)):
            places = np.linspace(line[0], line[-1], 101)
            peaks = places[find_hills(spline(places))]
            found.append(np.outer(peaks, np.eye(len(self.origin))[axis]))
        return max(found, key=len)


def _filled(drops: np.ndarray) -> np.ndarray:
    """Return nats below the centre [9] along an axis; outwards of a failure they keep growing."""
    drops = np.insert(drops, 4, 0.0)
    for places in (range(5, 9), range(3, -1, -1)):
        last = 0.0
        for place in places:
            drops[place] = drops[place] if np.isfinite(drops[place]) else max(DEPTH, last) + 4
            last = drops[place]
    return drops


def _finite_or_zero(values: np.ndarray) -> np.ndarray:
    """Return values, zero where they are not finite."""
    return np.where(np.isfinite(values), values, 0.0)


def _bounded(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates that do not grow much beyond the corners."""
    return coordinates / np.sqrt(1 + (coordinates / BOUND) ** 2)


def _products(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the products [n, 4] of first and second powers."""
    return np.stack([x * y, x * x * y, x * y * y, x * x * y * y], axis=1)


def _triple_products(bounded: np.ndarray) -> np.ndarray:
    """Return the products [n, t] of three coordinates each."""
    triples = combinations(range(bounded.shape[1]), 3)
    columns = bounded.T.copy()
    return np.array([columns[i] * columns[j] * columns[k] for i, j, k in triples]).T


def _moments(coordinates: np.ndarray) -> np.ndarray:
    """Return coordinates and their products of two [n, h + h (h + 1) / 2]."""
    rows, columns = np.triu_indices(coordinates.shape[1])
    return np.concatenate([coordinates, coordinates[:, rows] * coordinates[:, columns]], axis=1)


def _tilted(shares: np.ndarray, moments: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the weights [g] nearest to shares that have given moments, in relative entropy.

    Newton's method in the tilts; the shares themselves where no positive weights have the moments.
    """
    centred = moments - wanted
    tilts = np.zeros(len(wanted))
    for _ in range(TILTS):
        exponents = centred @ tilts
        weights = shares * np.exp(exponents - exponents.max())
        weights /= weights.sum()
        slope = weights @ centred
        if np.max(np.abs(slope)) < 1e-10:
            return weights
        hessian = (centred * weights[:, None]).T @ centred - np.outer(slope, slope)
        step = np.linalg.lstsq(hessian, -slope, rcond=1e-12)[0]
        tilts = tilts + step * min(1.0, 1.0 / max(np.max(np.abs(step)), 1e-300))
    return shares
