"""Cholesky factors and products of many small blocks, [..., s, s]."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

UNROLLED = 8  # largest blocks that are factored entry by entry, all blocks at once
CALLS = 5  # operations on an entry of all blocks that cost as much as one block by LAPACK


def inverse_factors(blocks: np.ndarray) -> np.ndarray:
    """Return L⁻¹ of blocks L Lᵀ, lower triangular; nan where a block is not positive definite."""
    size = blocks.shape[-1]
    if size == 1:
        return 1 / np.sqrt(_positive(blocks))
    if size <= UNROLLED and size**3 < CALLS * blocks[..., 0, 0].size:
        return _inverse_factors_by_entries(blocks)
    inverses = np.empty_like(blocks).reshape(-1, size, size)
    for inverse, block in zip(inverses, blocks.reshape(-1, size, size), strict=True):
        inverse[:] = _inverse_factor(block)
    return inverses.reshape(blocks.shape)


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return products of blocks; blocks of one number are multiplied by it."""
    return left * right if left.shape[-2:] == (1, 1) else left @ right


def transposed(blocks: np.ndarray) -> np.ndarray:
    """Return the transpose of each block."""
    return np.swapaxes(blocks, -1, -2)


def _positive(pivots: np.ndarray) -> np.ndarray:
    return np.where(pivots > 0, pivots, np.nan)


def _inverse_factors_by_entries(blocks: np.ndarray) -> np.ndarray:
    """Return L⁻¹; an entry of all blocks is one operation."""
    size = blocks.shape[-1]
    lower: dict[tuple[int, int], np.ndarray] = {}
    inverses = np.zeros_like(blocks)
    for row in range(size):
        for column in range(row):
            rest = _less(blocks[..., row, column], lower, row, column)
            lower[row, column] = rest * inverses[..., column, column]
        pivot = _less(blocks[..., row, row], lower, row, row)
        inverses[..., row, row] = scale = 1 / np.sqrt(_positive(pivot))
        for column in range(row):
            total = lower[row, column] * inverses[..., column, column]
            for k in range(column + 1, row):
                total += lower[row, k] * inverses[..., k, column]
            inverses[..., row, column] = -scale * total
    return inverses


def _less(
    entry: np.ndarray, lower: dict[tuple[int, int], np.ndarray], row: int, column: int
) -> np.ndarray:
    """Return an entry of M less what the columns of L before it explain."""
    for k in range(column):
        entry = entry - lower[row, k] * lower[column, k]
    return entry


def _inverse_factor(block: np.ndarray) -> np.ndarray:
    """Return L⁻¹ of one block by LAPACK."""
    factor, failed_at = lapack.dpotrf(block, lower=1, clean=1)
    if failed_at or not np.isfinite(factor.diagonal()).all():
        return np.full_like(block, np.nan)
    return lapack.dtrtri(factor, lower=1)[0]
