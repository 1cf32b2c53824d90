"""Draws of hyperparameters between the points of a grid, each with a point of the grid near it."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from moment_inference.nested.exploration.surface import Surface

MORE = 8  # proposals for a draw
BLOCK = 400  # draws that are paired with points at once


def surface_draws(surface: Surface, generator: np.random.Generator, count: int) -> np.ndarray:
    """Return draws [count, h] of coordinates.

    Proposals are uniform in the surface's cells, which are chosen by their mass; the draws are
    those that importance weights leave.
    """
    coordinates, values, widths = surface.cells
    cells = _chosen(np.exp(values - values.max()), generator, MORE * count)
    proposals = coordinates[cells] + widths * generator.uniform(
        -0.5, 0.5, (len(cells), len(widths))
    )
    ratios = np.exp(surface.log_density(proposals) - values[cells])
    return proposals[generator.permutation(_chosen(ratios, generator, count))]


def _chosen(masses: np.ndarray, generator: np.random.Generator, count: int) -> np.ndarray:
    """Return numbers [count] in proportion to masses, by systematic resampling, in order."""
    edges = np.cumsum(masses)
    places = (np.arange(count) + generator.uniform()) / count * edges[-1]
    return np.minimum(np.searchsorted(edges, places), len(masses) - 1)


def nearest_points(
    draws: np.ndarray, points: np.ndarray, weights: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Return the number of a point [n] for each draw [n, h].

    The points have shares of the draws as their weights say; among the pairings that leave them
    these shares, some hundreds of draws at a time have the least sum of squared distances.
    """
    numbers = _chosen(weights, generator, len(draws))
    if draws.shape[1] == 1:
        order = np.argsort(points[numbers, 0], kind="stable")
        paired = np.empty(len(draws), dtype=int)
        paired[np.argsort(draws[:, 0], kind="stable")] = numbers[order]
        return paired
    numbers = generator.permutation(numbers)
    for block in np.array_split(np.arange(len(draws)), 1 + len(draws) // BLOCK):
        offered = numbers[block]
        apart = ((draws[block, None] - points[offered]) ** 2).sum(-1)
        numbers[block] = offered[linear_sum_assignment(apart)[1]]
    return numbers
