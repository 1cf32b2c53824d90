"""Moments of linear functions of the field, for sites that are such functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from moment_inference.nested.conditional import Conditional
from moment_inference.nested.cumulant import Corrections
from moment_inference.nested.given.host import ConditionalModel

NUMBERS = 2**23  # most numbers of covariances at once
Moments = tuple[np.ndarray, np.ndarray, np.ndarray]  # means, variances and thirds, [g, m] each


def linear_moments(
    model: ConditionalModel,
    conditional: Conditional,
    corrections: Corrections,
    widening: np.ndarray,  # corrected over Gaussian standard deviations of coordinates, [g, d]
    matrix: np.ndarray,  # A [m, d]
    offset: np.ndarray,  # b [m]
) -> Moments:
    """Return the corrected moments of A x + b at each point; third ones are Σ_i a_i3 (A c_i)³."""
    means = (conditional.mean + corrections.mean) @ matrix.T + offset
    third = model.higher(conditional.theta, conditional.predictor, conditional.variance)[:, 0]
    parts = [
        _some(conditional, third, rows * widening[:, None]) for rows in _blocks(conditional, matrix)
    ]
    variances, thirds = (np.concatenate(arrays, 1) for arrays in zip(*parts, strict=True))
    return means, variances, thirds


def _blocks(conditional: Conditional, matrix: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows of a matrix, few enough at a time."""
    numbers = conditional.predictor.size + conditional.mean.size
    count = max(1, NUMBERS // max(1, numbers))
    for start in range(0, len(matrix), count):
        yield matrix[start : start + count]


def _some(
    conditional: Conditional, third: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return variances and third moments of some functions [g, m, d], [g, m] each."""
    columns = np.swapaxes(rows, 1, 2)
    solved = conditional.factors.solve(columns)
    crossed = conditional.design.times(solved)  # [g, n, m]
    return (columns * solved).sum(1), np.einsum("gn,gnm->gm", third, crossed**3)
