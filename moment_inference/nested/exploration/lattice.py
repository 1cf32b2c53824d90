"""Equispaced points along the axes of one to three hyperparameters, and the spline through them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.interpolate import NdBSpline, make_interp_spline
from scipy.ndimage import distance_transform_edt
from scipy.special import logsumexp

from moment_inference.nested.exploration.extent import DEPTH, Extent
from moment_inference.nested.exploration.mode import Evaluate, finite
from moment_inference.nested.exploration.surface import Cells, compressed, find_hills

COUNTS = {1: 41, 2: 11}  # points an axis
SPACING, LEAST, MOST = 1.1, 9, 17  # of three hyperparameters: standard deviations, points an axis
FINE = {1: 401, 2: 81, 3: 41}  # the same of the spline's table
EDGE = 1e-4  # share of the mass beyond an edge that makes the lattice grow
GROWTH, ROUNDS = {1: 4, 2: 2, 3: 1}, 100  # levels a round, rounds
MARGIN = 2.0  # nats beyond DEPTH to which the neighbours of nodes are evaluated
MOST_POINTS = {2: 300, 3: 600}  # beyond which spacings are not halved
COARSE, REFINEMENTS = 5e-4, 3  # error of the log evidence at which spacings are halved, times


@dataclass(frozen=True)
class Lattice:
    """Nodes of a lattice in coordinates z, theta = origin + axes z, and those evaluated."""

    origin: np.ndarray
    axes: np.ndarray  # [h, h]
    levels: list[np.ndarray]  # of each axis, equispaced
    index: np.ndarray  # [g] flat numbers of the nodes that are evaluated

    @property
    def shape(self) -> tuple[int, ...]:
        """How many nodes each axis has."""
        return tuple(map(len, self.levels))

    @property
    def numbers(self) -> np.ndarray:
        """The flat numbers of all nodes."""
        return np.arange(np.prod(self.shape)).reshape(self.shape)

    @property
    def coordinates(self) -> np.ndarray:
        """Coordinates [g, h] of the evaluated nodes."""
        mesh = np.meshgrid(*self.levels, indexing="ij")
        return np.stack([part.ravel()[self.index] for part in mesh], axis=1)

    @property
    def points(self) -> np.ndarray:
        """The evaluated nodes as hyperparameters [g, h]."""
        return self.origin + self.coordinates @ self.axes.T

    @property
    def spacings(self) -> np.ndarray:
        """How far levels [h] are apart."""
        return np.array([level[1] - level[0] for level in self.levels])

    @property
    def log_cell(self) -> float:
        """The log volume of a cell, in theta."""
        return float(np.log(self.spacings).sum() + np.linalg.slogdet(self.axes)[1])

    def spread(self, values: np.ndarray, missing: float) -> np.ndarray:
        """Return values [g] on all nodes."""
        full = np.full(self.shape, missing)
        full.flat[self.index] = values
        return full

    def padded(self, more: np.ndarray) -> Lattice:
        """Return the same nodes with more levels [h, 2] before the first and after the last."""
        levels = [
            level[0] + (level[1] - level[0]) * np.arange(-before, len(level) + after)
            for level, (before, after) in zip(self.levels, more, strict=True)
        ]
        return self._renumbered(levels, self._places() + more[:, 0])

    def refined(self, axis: int) -> Lattice:
        """Return the same nodes with half the spacing along an axis."""
        levels, factor = list(self.levels), np.ones(len(self.levels), dtype=int)
        factor[axis] = 2
        level = levels[axis]
        levels[axis] = np.linspace(level[0], level[-1], 2 * len(level) - 1)
        return self._renumbered(levels, self._places() * factor)

    def _places(self) -> np.ndarray:
        """Return the levels' numbers [g, h] of the evaluated nodes."""
        return np.stack(np.unravel_index(self.index, self.shape), axis=1)

    def _renumbered(self, levels: list[np.ndarray], places: np.ndarray) -> Lattice:
        """Return a lattice of other levels, in which the nodes have these places [g, h]."""
        index = np.ravel_multi_index(tuple(places.T), tuple(map(len, levels)))
        return replace(self, levels=levels, index=index)

    def surface(self, values: np.ndarray) -> LatticeSurface:
        """Return what log densities [g] at the evaluated nodes say."""
        return LatticeSurface(self, values)


def build_lattice(evaluate: Evaluate, extent: Extent) -> tuple[Lattice, np.ndarray]:
    """Return a lattice over an extent, grown where its edge has mass, and log densities [g]."""
    size = len(extent.reach)
    levels = [np.linspace(-left, right, _count(size, left + right)) for left, right in extent.reach]
    begin = Lattice(extent.mode.point, extent.mode.axes, levels, np.arange(0))
    step = slice(None, None, 2 if size > 1 else 1)  # first every other node
    first = begin.numbers[(step,) * size].ravel()
    lattice, values = _with_nodes(evaluate, begin, np.zeros(0), first)
    lattice, values = _flooded(evaluate, lattice, values)
    for _ in range(REFINEMENTS if size > 1 else 0):
        if lattice.surface(values).spacing_error < COARSE or len(values) > MOST_POINTS[size]:
            break
        lattice = lattice.refined(_coarsest(lattice, values))
        lattice, values = _flooded(evaluate, lattice, values)
    return lattice, values


def _count(size: int, width: float) -> int:
    """Return the number of levels over a width in standard deviations."""
    return COUNTS[size] if size in COUNTS else int(np.clip(width / SPACING + 1, LEAST, MOST))


def _flooded(
    evaluate: Evaluate, lattice: Lattice, values: np.ndarray
) -> tuple[Lattice, np.ndarray]:
    """Evaluate neighbours of nodes that count until none is left, beyond edges that have mass."""
    for _ in range(ROUNDS):
        near = lattice.spread(values, -np.inf) > np.max(values) - DEPTH - MARGIN
        wanted = distance_transform_edt(~near) < 2 if near.ndim > 1 else np.ones_like(near)
        nodes = np.setdiff1d(lattice.numbers[wanted], lattice.index)
        if len(nodes):
            lattice, values = _with_nodes(evaluate, lattice, values, nodes)
            continue
        edges = lattice.surface(values).edges > EDGE
        if not edges.any():
            break
        lattice = lattice.padded(GROWTH[len(edges)] * edges)
    return lattice, values


def _with_nodes(
    evaluate: Evaluate, lattice: Lattice, values: np.ndarray, nodes: np.ndarray
) -> tuple[Lattice, np.ndarray]:
    """Return the lattice with more nodes evaluated, in order."""
    more = finite(evaluate, replace(lattice, index=nodes).points)
    index = np.concatenate([lattice.index, nodes])
    order = np.argsort(index)
    return replace(lattice, index=index[order]), np.concatenate([values, more])[order]


def _coarsest(lattice: Lattice, values: np.ndarray) -> int:
    """Return the axis along which every other level gives the worst integral."""
    mass = lattice.spread(np.exp(values - np.max(values)), 0.0)
    halves = [mass.take(np.arange(0, mass.shape[k], 2), axis=k) for k in range(mass.ndim)]
    return int(np.argmax([abs(np.log(2 * half.sum() / mass.sum())) for half in halves]))


@dataclass(frozen=True)
class LatticeSurface:
    """A spline through log densities at the nodes of a lattice."""

    lattice: Lattice
    values: np.ndarray  # [g], minus infinity where a node counts as zero
    best: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "best", float(np.max(self.values)))

    @property
    def origin(self) -> np.ndarray:
        """Where the coordinates are zero."""
        return self.lattice.origin

    @property
    def axes(self) -> np.ndarray:
        """The directions of the coordinates."""
        return self.lattice.axes

    @property
    def log_evidence(self) -> float:
        """The log integral by the trapezoidal rule, which is spectrally accurate."""
        return float(logsumexp(self.values)) + self.lattice.log_cell

    @property
    def weights(self) -> np.ndarray:
        """Shares of the mass [g]."""
        return np.exp(self.values - logsumexp(self.values))

    @cached_property
    def edges(self) -> np.ndarray:
        """Shares of the mass [h, 2] beyond the first and the last level, if it falls as before."""
        mass = self.lattice.spread(self.weights, 0.0)
        axes = range(mass.ndim)
        sums = [mass.sum(axis=tuple(other for other in axes if other != axis)) for axis in axes]
        return np.array([[tail(part), tail(part[::-1])] for part in sums])

    @property
    def edge_mass(self) -> float:
        """The share of the mass beyond the lattice."""
        return float(self.edges.sum())

    @cached_property
    def _spline(self) -> NdBSpline:
        """The spline of degree five through compressed nats below the best."""
        knots, coefficients = [], self._drops
        for axis, level in enumerate(self.lattice.levels):
            spline = make_interp_spline(level, coefficients, k=5, axis=axis)
            knots.append(spline.t)
            coefficients = np.moveaxis(spline.c, 0, axis)
        return NdBSpline(tuple(knots), coefficients, 5)

    @cached_property
    def _drops(self) -> np.ndarray:
        """Compressed nats below the best on all nodes; where none are known, from the nearest."""
        drops = self.lattice.spread(self.best - self.values, np.inf)
        unknown = ~np.isfinite(drops)
        if not unknown.any():
            return compressed(drops)
        distances, nearest = distance_transform_edt(unknown, return_indices=True)
        filled = np.maximum(drops[tuple(nearest)], DEPTH) + 4 * distances
        return compressed(np.where(unknown, filled, drops))

    def log_density(self, coordinates: np.ndarray) -> np.ndarray:
        """Return log densities [n] at coordinates [n, h]."""
        ends = np.array([[level[0], level[-1]] for level in self.lattice.levels])
        inside = ((coordinates >= ends[:, 0]) & (coordinates <= ends[:, 1])).all(axis=1)
        values = self.best - self._spline(np.clip(coordinates, ends[:, 0], ends[:, 1]))
        return np.where(inside, values, -np.inf)

    @cached_property
    def cells(self) -> Cells:
        """A fine lattice and log densities on it."""
        count = FINE[len(self.origin)]
        levels = [np.linspace(level[0], level[-1], count) for level in self.lattice.levels]
        fine = replace(self.lattice, levels=levels, index=np.arange(count ** len(levels)))
        drops = self._drops
        for axis, (level, places) in enumerate(zip(self.lattice.levels, levels, strict=True)):
            drops = make_interp_spline(level, drops, k=5, axis=axis)(places)
        return Cells(fine.coordinates, self.best - drops.ravel(), fine.spacings)

    @property
    def spacing_error(self) -> float:
        """How far the integral of the spline is from the rule's, nats."""
        finer = np.log(self.cells.widths / self.lattice.spacings).sum()
        total = logsumexp(self.cells.values) + finer - logsumexp(self.values)
        return abs(float(total))

    @cached_property
    def peaks(self) -> np.ndarray:
        """Coordinates [m, h] of the spline's maxima."""
        size = len(self.origin)
        hills = find_hills(self.cells.values.reshape((FINE[size],) * size))
        return self.cells.coordinates[hills]


def tail(masses: np.ndarray) -> float:
    """Return the mass before the first of a row of masses, that of a geometric series."""
    if masses[0] == 0:
        return 0.0
    quotient = masses[0] / max(masses[1], 1e-300)
    return float(masses[0] * quotient / (1 - quotient)) if quotient < 1 else 1.0
