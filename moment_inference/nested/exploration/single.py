"""The design of no hyperparameters: one point, whose density is the evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_inference.nested.exploration.extent import Extent
from moment_inference.nested.exploration.mode import Mode
from moment_inference.nested.exploration.surface import Cells

NOWHERE, NO_AXES = np.zeros(0), np.zeros((0, 0))


@dataclass(frozen=True)
class SinglePoint:
    """One point of no coordinates."""

    @property
    def points(self) -> np.ndarray:
        """Return the point, [1, 0]."""
        return np.zeros((1, 0))

    @property
    def coordinates(self) -> np.ndarray:
        """Return a coordinate by which the point is its own neighbour, [1, 1]."""
        return np.zeros((1, 1))

    def extent(self, value: float) -> Extent:
        """Return the extent of the point."""
        return Extent(Mode(NOWHERE, value, NO_AXES, NO_AXES), np.zeros((0, 2)), np.zeros((0, 2)))

    def surface(self, log_density: np.ndarray) -> SingleSurface:
        """Return what the value at the point says."""
        return SingleSurface(float(log_density[0]))


@dataclass(frozen=True)
class SingleSurface:
    """A density of no variables."""

    log_evidence: float
    origin = NOWHERE
    axes = NO_AXES
    spacing_error = 0.0
    edge_mass = 0.0

    @property
    def weights(self) -> np.ndarray:
        """Return the weight of the point, [1]."""
        return np.ones(1)

    @property
    def cells(self) -> Cells:
        """Return the point as a cell."""
        return Cells(np.zeros((1, 0)), np.array([self.log_evidence]), NOWHERE)

    @property
    def peaks(self) -> np.ndarray:
        """Return the point, [1, 0]."""
        return np.zeros((1, 0))

    def log_density(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the value at points, [n]."""
        return np.full(len(coordinates), self.log_evidence)
