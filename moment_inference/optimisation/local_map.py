"""Coordinates of a Gaussian in which its Fisher metric is the identity.

Around N(m₀, L₀ L₀ᵀ) they are a and a symmetric B,

    m = m₀ + L₀ a,   L = L₀ chol(I + √2 B − a aᵀ):

the mean parameters E z and E z zᵀ, whitened. There the entropy has the gradient (0, I/√2) and
the Hessian −I, whatever the Gaussian is, so that a step against the gradient of the loss is one
of the natural gradient, and conjugate gradients need no other preconditioner.

Source: Opper and Archambeau 2009; Khan and Rue 2023; the map is derived in docs/maths.md.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from moment_guides.families.gaussian import GaussianParameters, GaussianPoint

ROOT = np.sqrt(2.0)
LEAST_EIGENVALUE = 1e-8  # of the precision after a step, relative to before


class LocalMap:
    """The coordinates (a, B, t) around one Gaussian, as one vector; zero is the Gaussian itself."""

    def __init__(
        self, parameters: GaussianParameters, origin: GaussianPoint, units: np.ndarray
    ) -> None:
        self.parameters, self.origin = parameters, origin
        self.units = units  # of the parameters that are no Gaussian's, [r]
        self.blocks, self.width = origin.mean.shape

    @cached_property
    def _packed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, columns and lengths of the elements of a symmetric matrix: ½ Σ B² is kept."""
        rows, columns = np.tril_indices(self.width)
        return rows, columns, np.where(rows == columns, 1.0, ROOT)

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        return self.blocks * self.width * (3 + self.width) // 2 + len(self.units)

    def split(self, step: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a [blocks, k], B [blocks, k, k] and t [r] of a vector of coordinates."""
        rows, columns, lengths = self._packed
        ends = np.cumsum([self.blocks * self.width, self.blocks * len(rows)])
        a, packed, t = np.split(step, ends)
        b = np.empty([self.blocks, self.width, self.width])
        b[:, rows, columns] = b[:, columns, rows] = packed.reshape(self.blocks, -1) / lengths
        return a.reshape(self.blocks, self.width), b, t

    def joined(self, a: np.ndarray, b: np.ndarray, t: np.ndarray) -> np.ndarray:
        """Return the vector of coordinates, of a symmetric B."""
        rows, columns, lengths = self._packed
        return np.concatenate([a.ravel(), (b[:, rows, columns] * lengths).ravel(), t])

    def point(self, step: np.ndarray) -> GaussianPoint:
        """Return the Gaussian at coordinates; raise LinAlgError where there is none."""
        return self._point(*self.split(step))[0]

    def _point(
        self, a: np.ndarray, b: np.ndarray, t: np.ndarray
    ) -> tuple[GaussianPoint, np.ndarray]:
        """Return the Gaussian at coordinates, and its factor relative to that of the origin."""
        moment = np.eye(self.width) + ROOT * b - a[..., None] * a[:, None]
        inner = np.linalg.cholesky(moment)
        mean = self.origin.mean + np.einsum("bij,bj->bi", self.origin.root, a)
        rest = self.origin.rest + self.units * t
        return GaussianPoint(mean, self.origin.root @ inner, rest), inner

    def gradient(self, step: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return derivatives by the coordinates from those by the parameters, both there."""
        a, b, t = self.split(step)
        point, inner = self._point(a, b, t)
        by = self.parameters.slope(point, slope)
        before = np.swapaxes(self.origin.root, 1, 2)
        half = _lower_with_half_diagonal(np.swapaxes(inner, 1, 2) @ np.tril(before @ by.root))
        inverse = np.linalg.inv(inner)
        moment = np.swapaxes(inverse, 1, 2) @ half @ inverse
        moment = (moment + np.swapaxes(moment, 1, 2)) / 2
        by_mean = (before @ by.mean[..., None])[..., 0] - 2 * (moment @ a[..., None])[..., 0]
        return self.joined(by_mean, ROOT * moment, self.units * by.rest)

    def direction(self, step: np.ndarray) -> np.ndarray:
        """Return how the parameters [n] begin to change along coordinates, from the Gaussian."""
        a, b, t = self.split(step)
        mean = np.einsum("bij,bj->bi", self.origin.root, a)
        by_root = self.origin.root @ _lower_with_half_diagonal(ROOT * b)
        return self.parameters.direction(self.origin, GaussianPoint(mean, by_root, self.units * t))

    def moved(self, step: np.ndarray) -> GaussianPoint | None:
        """Return the Gaussian whose natural parameters have taken a step; None if there is none.

        P⁺ = L⁻ᵀ (I − √2 B) L⁻¹ and m⁺ = m + P⁺⁻¹ L⁻ᵀ a: one step is exact for a conjugate model.
        """
        a, b, t = self.split(step)
        precision = np.eye(self.width) - ROOT * b
        values, vectors = np.linalg.eigh((precision + np.swapaxes(precision, 1, 2)) / 2)
        if not values.min(initial=np.inf) > LEAST_EIGENVALUE:
            return None
        covariance = (vectors / values[:, None]) @ np.swapaxes(vectors, 1, 2)
        root = self.origin.root
        mean = self.origin.mean + (root @ (covariance @ a[..., None]))[..., 0]
        root = root @ np.linalg.cholesky((covariance + np.swapaxes(covariance, 1, 2)) / 2)
        return GaussianPoint(mean, root, self.origin.rest + self.units * t)


def _lower_with_half_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return what the factor of a symmetric matrix near I changes by, and its transpose."""
    return np.tril(matrix) - np.eye(matrix.shape[1]) * matrix / 2
