"""Cholesky factors and products of many small blocks, [..., s, s]."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

UNROLLED = 8  # largest blocks that are factored column by column, all blocks at once


def inverse_factors(blocks: np.ndarray) -> np.ndarray:
    """Return L⁻¹ of blocks L Lᵀ, lower triangular; nan where a block is not positive definite."""
    size = blocks.shape[-1]
    if size == 1:
        return 1 / np.sqrt(_positive(blocks))
    if size <= UNROLLED:
        return _triangular_inverse(_cholesky(blocks))
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


def _cholesky(blocks: np.ndarray) -> np.ndarray:
    """Return L by columns."""
    factors = np.zeros_like(blocks)
    for column in range(blocks.shape[-1]):
        known = factors[..., column:, :column]
        rest = blocks[..., column:, column] - np.einsum("...ij,...j->...i", known, known[..., 0, :])
        root = np.sqrt(_positive(rest[..., :1]))
        factors[..., column:, column] = rest / root
    return factors


def _triangular_inverse(factors: np.ndarray) -> np.ndarray:
    """Return L⁻¹ by rows."""
    inverses = np.zeros_like(factors)
    for row in range(factors.shape[-1]):
        scale = 1 / factors[..., row, row]
        known = inverses[..., :row, :row]
        sums = np.einsum("...j,...jk->...k", factors[..., row, :row], known)
        inverses[..., row, :row] = -sums * scale[..., None]
        inverses[..., row, row] = scale
    return inverses


def _inverse_factor(block: np.ndarray) -> np.ndarray:
    """Return L⁻¹ of one block by LAPACK."""
    factor, failed_at = lapack.dpotrf(block, lower=1, clean=1)
    if failed_at or not np.isfinite(factor.diagonal()).all():
        return np.full_like(block, np.nan)
    return lapack.dtrtri(factor, lower=1)[0]
