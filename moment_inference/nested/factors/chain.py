"""Cholesky factors of long chains of single coordinates, one chain after another by LAPACK."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from moment_inference.nested.factors.band import Band

CALLS = 4  # steps of all chains at once that take as long as one chain by LAPACK


class Chain(Band):
    """The same as a ``Band`` of blocks [N, g, l, 1, 1], without a loop over its steps."""

    @staticmethod
    def pays(shape: tuple[int, ...]) -> bool:
        """Return whether blocks of this shape, [N, g, l, s, s], are such chains."""
        return shape[-1] == 1 < shape[0] and shape[0] * CALLS > shape[1] * shape[2]

    def __init__(self, diagonal: np.ndarray, below: np.ndarray) -> None:
        self._inverse, self._below = np.empty_like(diagonal), np.empty_like(below)
        own, coupled = _chains(diagonal), _chains(below)
        for at in np.ndindex(own.shape[:-1]):
            pivots, factors, failed = lapack.dpttrf(own[at], coupled[at])
            roots = np.sqrt(np.where(failed == 0, pivots, np.nan))
            self._inverse[:, *at, 0, 0] = 1 / roots
            self._below[:, *at, 0, 0] = factors * roots[:-1]

    def forward(self, right: np.ndarray) -> np.ndarray:
        """Return L⁻¹ b, [N, g, l, 1, k]."""
        return self._solved(right, "N")

    def backward(self, right: np.ndarray) -> np.ndarray:
        """Return L⁻ᵀ z, [N, g, l, 1, k]."""
        return self._solved(right, "T")

    def _solved(self, right: np.ndarray, how: str) -> np.ndarray:
        solved = np.empty_like(right)
        if not solved.size:
            return solved
        own, coupled = 1 / _chains(self._inverse), _chains(self._below)
        for at in np.ndindex(own.shape[:-1]):
            columns = right[:, *at, 0]
            solved[:, *at, 0] = _bidiagonal(own[at], coupled[at], columns, how)
        return solved

    def inverse(self) -> tuple[np.ndarray, np.ndarray]:
        """Return M⁻¹ on the diagonal and below it: d_i = a_i + c_i² d_(i + 1), another chain."""
        factors = self._below * self._inverse[:-1]
        diagonal = np.empty_like(self._inverse)
        squares, own = _chains(self._inverse**2), _chains(factors**2)
        ones = np.ones(len(diagonal))
        for at in np.ndindex(own.shape[:-1]):
            solved = _bidiagonal(ones, -own[at], squares[at][:, None], "T")
            diagonal[:, *at, 0, 0] = solved[:, 0]
        return diagonal, -diagonal[1:] * factors


def _chains(blocks: np.ndarray) -> np.ndarray:
    """Return the numbers of each chain, [g, l, N]."""
    return np.ascontiguousarray(np.moveaxis(blocks[..., 0, 0], 0, -1))


def _bidiagonal(own: np.ndarray, below: np.ndarray, right: np.ndarray, how: str) -> np.ndarray:
    """Return the solution of L x = b or Lᵀ x = b with two diagonals; nan where L has some."""
    if not np.isfinite(own[0]):
        return np.full_like(right, np.nan)
    banded = np.stack([own, np.append(below, 0.0)])
    return lapack.dtbtrs(banded, right, uplo="L", trans=how)[0]
