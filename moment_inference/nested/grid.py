"""The grid of hyperparameters: where to evaluate, weights, evidence, marginals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.spatial import cKDTree

from moment_inference.nested.exploration.composite import Composite, build_composite
from moment_inference.nested.exploration.extent import DEPTH, Extent, find_extent
from moment_inference.nested.exploration.lattice import Lattice, build_lattice
from moment_inference.nested.exploration.mode import Evaluate, find_mode, finite
from moment_inference.nested.exploration.single import SinglePoint
from moment_inference.nested.exploration.surface import Surface, Table, marginal_table

MOST = 5  # hyperparameters
ROUGH = 0.02  # nats of predicted error that a composite design may have
APART = 0.5  # standard deviations between two maxima


@dataclass(frozen=True)
class Grid:
    """Points of an unnormalised log density of h hyperparameters, and what they say about it.

    Attributes:
        points: Hyperparameters [g, h] on their unconstrained scales.
        log_density: Log densities [g] there, unnormalised, in nats.
        extent: The mode, its axes and scales, and how far the density reaches.
        design: The rule that the points belong to.
        false_peaks: How many maxima between the points the density itself does not have.
    """

    points: np.ndarray
    log_density: np.ndarray
    extent: Extent
    design: Lattice | Composite | SinglePoint
    false_peaks: int = 0

    @cached_property
    def surface(self) -> Surface:
        """What the values say between the points."""
        return self.design.surface(self.log_density)

    @cached_property
    def weights(self) -> np.ndarray:
        """Weights of the points [g] in mixtures; their sum is 1."""
        return self.surface.weights

    @cached_property
    def log_evidence(self) -> float:
        """The log of the density's integral, nats."""
        return self.surface.log_evidence

    @cached_property
    def edge_mass(self) -> float:
        """The share of the mass beyond the outermost points."""
        return self.surface.edge_mass

    @cached_property
    def evidence_error(self) -> float:
        """The predicted error of the log evidence, nats, by the spacing and beyond the edge."""
        return self.surface.spacing_error + self.edge_mass

    @property
    def modes(self) -> int:
        """The number of maxima of the density that saddles keep apart."""
        return max(1, len(self.surface.peaks) - self.false_peaks)

    @property
    def has_two_modes(self) -> bool:
        """Whether the density has more than one maximum."""
        return self.modes > 1

    @property
    def mode(self) -> np.ndarray:
        """The point [h] from which the grid was laid."""
        return self.extent.mode.point

    def marginal(self, number: int) -> Table:
        """Return a table of the log density of one hyperparameter.

        It is normalised, has 401 equispaced points, and is zero outside of them.
        """
        return marginal_table(self.surface, number)

    def with_log_density(self, log_density: np.ndarray, evaluate: Evaluate | None = None) -> Grid:
        """Return the grid of another log density [g] at the same points.

        Where the first density counted as zero (8 nats below its best), a correction is not to be
        trusted: there it is that of the nearest point that counts. So it is where the new density
        fails. With ``evaluate``, the first density, maxima between the points are climbed from.
        """
        new = np.asarray(log_density, dtype=float)
        counts = np.isfinite(new) & (self.log_density > self.log_density.max() - DEPTH)
        if not counts.any():
            raise ValueError("no point of the grid has a finite log density")
        difference = np.where(counts, new - np.where(counts, self.log_density, 0.0), 0.0)
        coordinates = self.design.coordinates
        nearest = cKDTree(coordinates[counts]).query(coordinates)[1]
        corrected = self.log_density + difference[counts][nearest]
        found = replace(self, log_density=corrected)
        if evaluate is None:
            return found
        return replace(found, false_peaks=_false_peaks(_moved(evaluate, self, found), found))


def _moved(evaluate: Evaluate, before: Grid, after: Grid) -> Evaluate:
    """Return a density that is known, plus what surfaces of two grids say it is corrected by."""

    def moved(points: np.ndarray) -> np.ndarray:
        coordinates = np.linalg.solve(before.extent.mode.axes, (points - before.mode).T).T
        with np.errstate(invalid="ignore"):  # infinities outside of the grid
            correction = after.surface.log_density(coordinates)
            correction = correction - before.surface.log_density(coordinates)
            return evaluate(points) + correction

    return moved


def explore(evaluate: Evaluate, start: np.ndarray, refine: bool = True) -> Grid:
    """Lay a grid over a log density of up to five hyperparameters.

    ``evaluate`` takes points [g, h] to log densities [g], unnormalised, not finite where it fails;
    it is called with many points at once. ``start`` [h] is where the search for the mode begins.
    One hyperparameter has 41 equispaced points between the places where the density is 8 nats below
    its best, two have 11 by 11 along the eigenvectors of the Hessian at the mode, more a central
    composite design of 45, 73 or 113; the grid grows where its edge has mass. With ``refine``
    three, whose composite design predicts an error of the log evidence above .02, have a lattice
    of some hundreds; none have one point. Raises NoMode where the density has no maximum,
    ValueError where it is finite nowhere near the start.
    """
    start = np.atleast_1d(np.asarray(start, dtype=float))
    if len(start) > MOST:
        raise ValueError(f"a grid has 1 to {MOST} hyperparameters or none, not {len(start)}")
    if not len(start):
        return _single(evaluate)
    extent = find_extent(evaluate, start)
    build = build_lattice if len(start) < 3 else build_composite
    grid = _built(build, evaluate, extent)
    if refine and len(start) == 3 and grid.evidence_error > ROUGH:
        grid = _built(build_lattice, evaluate, extent)
    return replace(grid, false_peaks=_false_peaks(evaluate, grid))


def _single(evaluate: Evaluate) -> Grid:
    """Return the grid of no hyperparameters, which is one point."""
    design, (value,) = SinglePoint(), finite(evaluate, SinglePoint().points)
    if not np.isfinite(value):
        raise ValueError("the log density of the model is not finite")
    return Grid(design.points, np.array([value]), design.extent(value), design)


def _built(build: Callable, evaluate: Evaluate, extent: Extent) -> Grid:
    """Return the grid of a design."""
    design, values = build(evaluate, extent)
    return Grid(design.points, values, extent, design)


def _false_peaks(evaluate: Evaluate, grid: Grid) -> int:
    """Return how many of the peaks between points are not reached by climbing from them."""
    peaks, axes = grid.surface.peaks, grid.extent.mode.axes
    tops: list[np.ndarray] = []
    for peak in peaks if len(peaks) > 1 else ():
        try:
            top = find_mode(evaluate, grid.mode + axes @ peak).point
        except ValueError:  # the density runs off or fails: not another maximum, but not smooth
            top = grid.mode + axes @ peak
        if all(np.linalg.norm(np.linalg.solve(axes, top - other)) > APART for other in tops):
            tops.append(top)
    return len(peaks) - len(tops) if tops else 0
