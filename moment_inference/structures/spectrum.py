"""The covariance of an effect by its eigenvectors, in units of a typical variance."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

ROUNDING = 1e-9  # of eigenvalues, relative to the largest


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvectors and variances of the covariance V diag(v) Vᵀ of an effect."""

    vectors: np.ndarray  # [n, n]
    variances: np.ndarray  # zero for what the effect is orthogonal to, [n]

    @classmethod
    def of(cls, structure: np.ndarray) -> Spectrum:
        """Return the scaled generalised inverse of a structure matrix [n, n].

        The geometric mean of its diagonal is 1. Source: Sørbye and Rue 2014, section 3.
        """
        values, vectors = np.linalg.eigh(structure)
        is_null = values <= ROUNDING * values[-1]
        variances = np.where(is_null, 0, 1 / np.where(is_null, 1, values))
        vectors = vectors * _signs(vectors)
        marginal = vectors**2 @ variances
        return cls(vectors, variances / np.exp(np.log(marginal).mean()))

    @cached_property
    def basis(self) -> np.ndarray:
        """Return B with B Bᵀ the covariance, a column for each variance above zero."""
        counts = self.variances > 0
        return self.vectors[:, counts] * np.sqrt(self.variances[counts])


def _signs(vectors: np.ndarray) -> np.ndarray:
    """Return signs that make the largest element of each eigenvector positive."""
    largest = np.abs(vectors).argmax(0)
    return np.sign(vectors[largest, np.arange(vectors.shape[1])])
