"""What the local coordinates of the blocks of a Gaussian are, and small products of matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtri

from moment_calculus.operations.shapes.chains import Chain
from moment_guides.families.gaussian_parameters import Part

ROOT = np.sqrt(2.0)
LEAST_EIGENVALUE = 1e-8  # of the precision after a step, relative to before
LARGE = 50  # rows from which a triangle of its own is faster than many at once


class Coordinates(NamedTuple):
    """The coordinates of one part; its first p columns of B are those of the shared ones."""

    a: np.ndarray  # [blocks, k]
    b: np.ndarray  # [blocks, k, p + k]
    c: np.ndarray  # of a chain, [blocks − 1, k, k], else [0, k, k]

    @property
    def moments(self) -> np.ndarray:
        """Return E w wᵀ within blocks, [blocks, k, k]."""
        own = sides(self.b)[1]
        return np.eye(own.shape[1]) + ROOT * own

    @property
    def beside(self) -> np.ndarray:
        """Return E w and E w uᵀ of the shared u at the origin, [blocks, k, 1 + p]."""
        return np.concatenate([self.a[..., None], ROOT * sides(self.b)[0]], -1)


class Relative(NamedTuple):
    """A part in terms of the Gaussian at the origin: w = a + V u + K y + M e.

    y is what the block before it deviates by, and K zero but in a chain.
    """

    moves: np.ndarray  # a beside V, [blocks, k, 1 + p]
    root: np.ndarray  # M, lower triangular, [blocks, k, k]
    gain: np.ndarray  # K, [blocks − 1, k, k], or [0, k, k]


class Origin:
    """A part of the Gaussian at the origin: x = m + W u + y, y_t = A_t y_{t−1} + L_t e_t."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.slope, self.root = sides(part.root)  # W, L
        self.chain = Chain(part.links)
        ends = len(part.links)
        covariances = self.chain.covariances(self.root @ self.root.mT)[:ends]
        self.before = np.linalg.cholesky(covariances)  # R of the block before, [blocks − 1, k, k]


def sides(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the shared coordinates, and those of the block itself."""
    shared = matrices.shape[2] - matrices.shape[1]
    return matrices[..., :shared], matrices[..., shared:]


def times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return matrices [..., k, j] times vectors [..., j]."""
    return (matrices @ vectors[..., None])[..., 0]


def symmetric(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part of matrices."""
    return (matrix + matrix.mT) / 2


def lower_with_half_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return what the factor of a symmetric matrix near I changes by, and its transpose."""
    return np.tril(matrix) - np.eye(matrix.shape[1]) * matrix / 2


def through_cholesky(root: np.ndarray, by_root: np.ndarray) -> np.ndarray:
    """Return derivatives by symmetric matrices from those by their Cholesky factors."""
    half = lower_with_half_diagonal(root.mT @ np.tril(by_root))
    inverse = inverse_of_lower(root)
    return symmetric(inverse.mT @ half @ inverse)


def inverse(precision: np.ndarray) -> np.ndarray | None:
    """Return inverses of positive definite matrices; None if one is not or hardly so."""
    try:
        root = inverse_of_lower(np.linalg.cholesky(symmetric(precision)))
    except np.linalg.LinAlgError:
        return None
    result = root.mT @ root
    largest = np.trace(result, axis1=1, axis2=2).max(initial=0.0)  # at most k times too large
    return result if largest < 1 / LEAST_EIGENVALUE else None


def inverse_of_lower(roots: np.ndarray) -> np.ndarray:
    """Return the inverses of lower triangular matrices [n, k, k]."""
    if roots.shape[1] < LARGE:
        return np.linalg.inv(roots)
    return np.stack([dtrtri(root, lower=1)[0] for root in roots])
