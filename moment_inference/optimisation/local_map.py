"""Coordinates of a Gaussian in which its Fisher metric is the identity.

Around x = m₀ + L₀ w with a standard normal w they are a and a symmetric B, of which a Gaussian of
blocks that are independent given shared coordinates has the elements within blocks, and between
them and the shared ones:

    E w = a,   E w wᵀ = I + √2 B there.

There the entropy has the gradient (0, I/√2) and the Hessian −I, whatever the Gaussian is, so that
a step against the gradient of the loss is one of the natural gradient, and conjugate gradients
need no other preconditioner. A Gaussian of one block has m = m₀ + L₀ a, L = L₀ chol(I + √2 B −
a aᵀ).

Source: Opper and Archambeau 2009; Khan and Rue 2023; the map is derived in docs/maths.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian_parameters import GaussianParameters, GaussianPoint, Part

ROOT = np.sqrt(2.0)
LEAST_EIGENVALUE = 1e-8  # of the precision after a step, relative to before


class Coordinates(NamedTuple):
    """The coordinates of one part; its first p columns of B are those of the shared ones."""

    a: np.ndarray  # [blocks, k]
    b: np.ndarray  # [blocks, k, p + k]


class Relative(NamedTuple):
    """A part in the terms of the Gaussian at the origin: w = a + V u + M e."""

    mean: np.ndarray  # a, [blocks, k]
    slope: np.ndarray  # V, [blocks, k, p]
    root: np.ndarray  # M, lower triangular, [blocks, k, k]


class LocalMap:
    """The coordinates (a, B, t) around one Gaussian, as one vector; zero is the Gaussian itself."""

    def __init__(
        self, parameters: GaussianParameters, origin: GaussianPoint, units: np.ndarray
    ) -> None:
        self.parameters, self.origin = parameters, origin
        self.units = units  # of the parameters that are no Gaussian's, [r]
        self._elements = [_elements(part) for part in origin.parts]

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        pairs = zip(self.origin.parts, self._elements, strict=True)
        of_parts = sum(part.mean.size + len(part.mean) * len(rows) for part, (rows, *_) in pairs)
        return of_parts + len(self.units)

    def split(self, step: np.ndarray) -> tuple[list[Coordinates], np.ndarray]:
        """Return the coordinates of all parts, and t [r], of a vector of coordinates."""
        parts, start = list[Coordinates](), 0
        for part, (rows, columns, lengths) in zip(self.origin.parts, self._elements, strict=True):
            blocks, width = part.mean.shape
            middle = start + part.mean.size
            end = middle + blocks * len(rows)
            b: np.ndarray = np.zeros(part.root.shape)
            b[:, rows, columns] = step[middle:end].reshape(blocks, len(rows)) / lengths
            own = b[:, :, b.shape[2] - width :]
            own += np.swapaxes(np.tril(own, -1), 1, 2)
            parts.append(Coordinates(step[start:middle].reshape(blocks, width), b))
            start = end
        return parts, step[start:]

    def joined(self, parts: Sequence[Coordinates], t: np.ndarray) -> np.ndarray:
        """Return the vector of coordinates."""
        pieces = []
        for part, (rows, columns, lengths) in zip(parts, self._elements, strict=True):
            pieces += [part.a.ravel(), (part.b[:, rows, columns] * lengths).ravel()]
        return np.concatenate([*pieces, t])

    def point(self, step: np.ndarray) -> GaussianPoint:
        """Return the Gaussian at coordinates; raise LinAlgError where there is none."""
        parts, t = self.split(step)
        return self._point(_by_moments(parts), t)

    def gradient(self, step: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return derivatives by the coordinates from those by the parameters, both there."""
        if not step.any():
            return self._gradient_at_origin(slope)
        parts, t = self.split(step)
        relative = _by_moments(parts)
        by = self.parameters.slope(self._point(relative, t), slope)
        by_relative = _pulled_through(self.origin.parts, by.parts)
        return self.joined(_by_coordinates(parts, relative, by_relative), self.units * by.rest)

    def _gradient_at_origin(self, slope: np.ndarray) -> np.ndarray:
        by = self.parameters.slope(self.origin, slope)
        parts = [
            Coordinates(change.mean, np.concatenate([change.slope / ROOT, ROOT * own], -1))
            for change in _pulled_through(self.origin.parts, by.parts)
            for own in [_symmetric(_lower_with_half_diagonal(change.root))]
        ]
        return self.joined(parts, self.units * by.rest)

    def direction(self, step: np.ndarray) -> np.ndarray:
        """Return how the parameters [n] begin to change along coordinates, from the Gaussian."""
        parts, t = self.split(step)
        change = _images(self.origin.parts, [_first_order(part) for part in parts])
        return self.parameters.direction(self.origin, GaussianPoint(change, self.units * t))

    def moves_of_means(self, step: np.ndarray) -> list[np.ndarray]:
        """Return how the means of all parts begin to change along coordinates."""
        parts, _ = self.split(step)
        change = _images(self.origin.parts, [_first_order(part) for part in parts])
        return [part.mean for part in change]

    def moved(self, step: np.ndarray) -> GaussianPoint | None:
        """Return the Gaussian whose natural parameters have taken a step; None if there is none.

        In terms of w the precision is I − √2 B and its product with the mean a: one step is exact
        for a conjugate model.
        """
        parts, t = self.split(step)
        relative = _by_precision(parts)
        return None if relative is None else self._point(relative, t)

    def _point(self, relative: Sequence[Relative], t: np.ndarray) -> GaussianPoint:
        """Return the Gaussian of a distribution of w."""
        changes = _images(self.origin.parts, relative)
        pairs = zip(self.origin.parts, changes, strict=True)
        parts = tuple(Part(part.mean + new.mean, new.root) for part, new in pairs)
        return GaussianPoint(parts, self.origin.rest + self.units * t)


def _elements(part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and lengths of the elements of B that are kept: Σ B² is the square."""
    _, width, wide = part.root.shape
    shared = wide - width
    rows, columns = np.tril_indices(width, shared, wide)
    return rows, columns, np.where(columns == shared + rows, 1.0, ROOT)


def _sides(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the shared coordinates, and those of the block itself."""
    shared = matrices.shape[2] - matrices.shape[1]
    return matrices[..., :shared], matrices[..., shared:]


def _images(origin: Sequence[Part], relative: Sequence[Relative]) -> tuple[Part, ...]:
    """Return means, less the origin's, and factors of x for a distribution of w; linear in it."""
    (first, *plates), (shared, *blocks) = origin, relative
    images = [Part(_times(first.root, shared.mean), first.root @ shared.root)]
    for part, own in zip(plates, blocks, strict=True):
        slope, root = _sides(part.root)
        mean = slope @ shared.mean[0] + _times(root, own.mean)
        by_shared = slope @ shared.root[0] + root @ own.slope
        images.append(Part(mean, np.concatenate([by_shared, root @ own.root], -1)))
    return tuple(images)


def _pulled_through(origin: Sequence[Part], by: Sequence[Part]) -> list[Relative]:
    """Return derivatives by the distribution of w from those by means and factors of x."""
    (first, *plates), (by_first, *by_plates) = origin, by
    mean = np.swapaxes(first.root, 1, 2) @ by_first.mean[..., None]
    factor = np.swapaxes(first.root, 1, 2) @ by_first.root
    result = []
    for part, change in zip(plates, by_plates, strict=True):
        slope, root = _sides(part.root)
        by_slope, by_root = _sides(change.root)
        mean = mean + np.einsum("bij,bi->j", slope, change.mean)[:, None]
        factor = factor + np.einsum("bij,bik->jk", slope, by_slope)
        before = np.swapaxes(root, 1, 2)
        result.append(Relative(_times(before, change.mean), before @ by_slope, before @ by_root))
    none = np.zeros([*first.mean.shape, 0])
    return [Relative(mean[..., 0], none, factor), *result]


def _by_moments(parts: Sequence[Coordinates]) -> list[Relative]:
    """Return the distribution of w of which coordinates are the moments."""
    (first, *plates) = parts
    root = np.linalg.cholesky(_moments(first))
    result = [Relative(first.a, first.b[..., :0], root)]
    for part in plates:
        beside = ROOT * _sides(part.b)[0] - part.a[..., None] * first.a[0]
        slope = np.swapaxes(_solved(root[0], np.swapaxes(beside, 1, 2)), 1, 2)
        own = np.linalg.cholesky(_moments(part) - slope @ np.swapaxes(slope, 1, 2))
        result.append(Relative(part.a, slope, own))
    return result


def _moments(part: Coordinates) -> np.ndarray:
    """Return the covariance of the own coordinates of blocks."""
    own = _sides(part.b)[1]
    return np.eye(own.shape[1]) + ROOT * own - part.a[..., None] * part.a[:, None]


def _by_coordinates(
    parts: Sequence[Coordinates], relative: Sequence[Relative], by: Sequence[Relative]
) -> list[Coordinates]:
    """Return derivatives by coordinates from those by the distribution of w."""
    (first, *plates), (shared, *blocks), (by_shared, *by_blocks) = parts, relative, by
    by_mean, by_factor = by_shared.mean, by_shared.root
    result = []
    for part, own, change in zip(plates, blocks, by_blocks, strict=True):
        moments = _through_cholesky(own.root, change.root)
        by_slope = change.slope - 2 * moments @ own.slope
        beside = np.swapaxes(_solved(shared.root[0].T, np.swapaxes(by_slope, 1, 2)), 1, 2)
        by_factor = by_factor - np.einsum("bij,bik->jk", beside, own.slope)
        by_mean = by_mean - np.einsum("bij,bi->j", beside, part.a)
        a = change.mean - 2 * _times(moments, part.a) - beside @ first.a[0]
        result.append(Coordinates(a, np.concatenate([beside / ROOT, ROOT * moments], -1)))
    moments = _through_cholesky(shared.root, by_factor)
    a = by_mean - 2 * _times(moments, first.a)
    return [Coordinates(a, ROOT * moments), *result]


def _first_order(part: Coordinates) -> Relative:
    """Return how the distribution of w begins to change."""
    slope, own = _sides(part.b)
    return Relative(part.a, ROOT * slope, _lower_with_half_diagonal(ROOT * own))


def _by_precision(parts: Sequence[Coordinates]) -> list[Relative] | None:
    """Return the distribution of w with the precision I − √2 B; None if there is none."""
    (first, *plates) = parts
    precision, weighted = np.eye(first.b.shape[1]) - ROOT * first.b[0], first.a[0]
    slopes, covariances = [], []
    for part in plates:
        beside, own = _sides(part.b)
        covariance = _inverse(np.eye(own.shape[1]) - ROOT * own)
        if covariance is None:
            return None
        slope = ROOT * covariance @ beside
        precision = precision - ROOT * np.einsum("bij,bik->jk", beside, slope)
        weighted = weighted + np.einsum("bij,bi->j", slope, part.a)
        slopes.append(slope)
        covariances.append(covariance)
    covariance = _inverse(precision[None])
    if covariance is None:
        return None
    mean, root = covariance @ weighted, np.linalg.cholesky(covariance)
    result = [Relative(mean, first.b[..., :0], root)]
    for part, slope, own in zip(plates, slopes, covariances, strict=True):
        means = _times(own, part.a) + slope @ mean[0]
        result.append(Relative(means, slope @ root[0], np.linalg.cholesky(own)))
    return result


def _inverse(precision: np.ndarray) -> np.ndarray | None:
    """Return inverses of positive definite matrices; None if one is not or hardly so."""
    values, vectors = np.linalg.eigh(_symmetric(precision))
    if not values.min(initial=np.inf) > LEAST_EIGENVALUE:
        return None
    return _symmetric((vectors / values[:, None]) @ np.swapaxes(vectors, 1, 2))


def _solved(matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the inverse of one matrix times the columns of many."""
    return np.linalg.inv(matrix) @ columns


def _times(matrices: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return (matrices @ vectors[..., None])[..., 0]


def _through_cholesky(root: np.ndarray, by_root: np.ndarray) -> np.ndarray:
    """Return derivatives by symmetric matrices from those by their Cholesky factors."""
    half = _lower_with_half_diagonal(np.swapaxes(root, 1, 2) @ np.tril(by_root))
    inverse = np.linalg.inv(root)
    return _symmetric(np.swapaxes(inverse, 1, 2) @ half @ inverse)


def _symmetric(matrix: np.ndarray) -> np.ndarray:
    return (matrix + np.swapaxes(matrix, 1, 2)) / 2


def _lower_with_half_diagonal(matrix: np.ndarray) -> np.ndarray:
    """Return what the factor of a symmetric matrix near I changes by, and its transpose."""
    return np.tril(matrix) - np.eye(matrix.shape[1]) * matrix / 2
