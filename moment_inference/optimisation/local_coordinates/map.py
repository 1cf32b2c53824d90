"""The local coordinates of a Gaussian of blocks.

Around x = m₀ + L₀ w with a standard normal w they are a and a symmetric B, of which a Gaussian of
blocks that are independent given shared coordinates has the elements within blocks, and between
them and the shared ones:

    E w = a,   E w wᵀ = I + √2 B there,

and of the blocks of a chain, y_t = A_t y_{t−1} + L_t w_t, also C_t = E w_t z_{t−1}ᵀ, where z has
the unit covariance at the origin and y = R z.

There the entropy has the gradient (0, I/√2) and the Hessian −I, whatever the Gaussian is, so that
a step against the gradient of the loss is one of the natural gradient, and conjugate gradients
need no other preconditioner. A Gaussian of one block has m = m₀ + L₀ a, L = L₀ chol(I + √2 B −
a aᵀ).

Source: Opper and Archambeau 2009; Khan and Rue 2023; the map is derived in docs/maths.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from moment_guides.families.gaussian_parameters import GaussianParameters, GaussianPoint, Part
from moment_inference.optimisation.local_coordinates.chains import (
    by_neighbours,
    by_precision,
    neighbours,
)
from moment_inference.optimisation.local_coordinates.parts import (
    ROOT,
    Coordinates,
    Origin,
    Relative,
    inverse,
    inverse_of_lower,
    lower_with_half_diagonal,
    sides,
    symmetric,
    through_cholesky,
    times,
)


class LocalMap:
    """The coordinates (a, B, C, t) around one Gaussian, as one vector; zero is the Gaussian."""

    def __init__(
        self, parameters: GaussianParameters, origin: GaussianPoint, units: np.ndarray
    ) -> None:
        self.parameters, self.origin = parameters, origin
        self.units = units  # of the parameters that are no Gaussian's, [r]
        self.parts = [Origin(part) for part in origin.parts]
        self.elements = [_elements(part) for part in origin.parts]

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        pairs = zip(self.origin.parts, self.elements, strict=True)
        of_parts = (
            part.mean.size + len(part.mean) * len(rows) + part.links.size
            for part, (rows, *_) in pairs
        )
        return sum(of_parts) + len(self.units)

    def split(self, step: np.ndarray) -> tuple[list[Coordinates], np.ndarray]:
        """Return the coordinates of all parts, and t [r], of a vector of coordinates."""
        parts, start = list[Coordinates](), 0
        for part, (rows, columns, lengths) in zip(self.origin.parts, self.elements, strict=True):
            blocks, width = part.mean.shape
            sizes = [part.mean.size, blocks * len(rows), part.links.size]
            first, middle, end = start + np.cumsum(sizes)
            b: np.ndarray = np.zeros(part.root.shape)
            b[:, rows, columns] = step[first:middle].reshape(blocks, len(rows)) / lengths
            own = b[:, :, b.shape[2] - width :]
            own += np.tril(own, -1).mT
            a, c = step[start:first], step[middle:end]
            parts.append(Coordinates(a.reshape(part.mean.shape), b, c.reshape(part.links.shape)))
            start = end
        return parts, step[start:]

    def joined(self, parts: Sequence[Coordinates], t: np.ndarray) -> np.ndarray:
        """Return the vector of coordinates."""
        pieces = []
        for part, (rows, columns, lengths) in zip(parts, self.elements, strict=True):
            pieces += [part.a.ravel(), (part.b[:, rows, columns] * lengths).ravel(), part.c.ravel()]
        return np.concatenate([*pieces, t])

    def point(self, step: np.ndarray) -> GaussianPoint:
        """Return the Gaussian at coordinates; raise LinAlgError where there is none."""
        parts, t = self.split(step)
        return self._point(_by_moments(self.parts, parts), t)

    def gradient(self, step: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Return derivatives by the coordinates from those by the parameters, both there."""
        if not step.any():
            return self._gradient_at_origin(slope)
        parts, t = self.split(step)
        relative = _by_moments(self.parts, parts)
        by = self.parameters.slope(self._point(relative, t), slope)
        by_relative = _pulled_through(self.parts, by.parts)
        by_coordinates = _by_coordinates(self.parts, parts, relative, by_relative)
        return self.joined(by_coordinates, self.units * by.rest)

    def _gradient_at_origin(self, slope: np.ndarray) -> np.ndarray:
        by = self.parameters.slope(self.origin, slope)
        parts = [
            Coordinates(
                change.moves[..., 0],
                np.concatenate([change.moves[..., 1:] / ROOT, ROOT * own], -1),
                np.linalg.solve(origin.before, change.gain.mT).mT,
            )
            for origin, change in zip(
                self.parts, _pulled_through(self.parts, by.parts), strict=True
            )
            for own in [symmetric(lower_with_half_diagonal(change.root))]
        ]
        return self.joined(parts, self.units * by.rest)

    def direction(self, step: np.ndarray) -> np.ndarray:
        """Return how the parameters [n] begin to change along coordinates, from the Gaussian."""
        change, t = self._first_order(step)
        return self.parameters.direction(self.origin, GaussianPoint(change, self.units * t))

    def moves_of_means(self, step: np.ndarray) -> list[np.ndarray]:
        """Return how the means of all parts begin to change along coordinates."""
        return [part.mean for part in self._first_order(step)[0]]

    def moved(self, step: np.ndarray) -> GaussianPoint | None:
        """Return the Gaussian whose natural parameters have taken a step; None if there is none.

        In terms of w the precision is I − √2 B and its product with the mean a: one step is exact
        for a conjugate model.
        """
        parts, t = self.split(step)
        relative = _by_precision(self.parts, parts)
        return None if relative is None else self._point(relative, t)

    def _first_order(self, step: np.ndarray) -> tuple[tuple[Part, ...], np.ndarray]:
        parts, t = self.split(step)
        changes = [_first_order(*pair) for pair in zip(self.parts, parts, strict=True)]
        return _images(self.parts, changes), t

    def _point(self, relative: Sequence[Relative], t: np.ndarray) -> GaussianPoint:
        """Return the Gaussian of a distribution of w."""
        pairs = zip(self.origin.parts, _images(self.parts, relative), strict=True)
        parts = (Part(old.mean + new.mean, new.root, old.links + new.links) for old, new in pairs)
        return GaussianPoint(tuple(parts), self.origin.rest + self.units * t)


def _elements(part: Part) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, columns and lengths of the elements of B that are kept: Σ B² is the square."""
    _, width, wide = part.root.shape
    shared = wide - width
    rows, columns = np.tril_indices(width, shared, wide)
    return rows, columns, np.where(columns == shared + rows, 1.0, ROOT)


def _images(origin: Sequence[Origin], relative: Sequence[Relative]) -> tuple[Part, ...]:
    """Return parts of x for a distribution of w, but moves from the origin; linear in it."""
    (first, *plates), (shared, *blocks) = origin, relative
    moves = np.concatenate([shared.moves, shared.root], -1)[0]  # of u, [p, 1 + p]
    images = [_part(first.root @ moves[None], first.part.links)]
    for part, own in zip(plates, blocks, strict=True):
        by_shared = part.slope @ moves + part.chain.solve(part.root @ own.moves)
        both = np.concatenate([by_shared, part.root @ own.root], -1)
        images.append(_part(both, part.root[1:][: len(own.gain)] @ own.gain))
    return tuple(images)


def _part(columns: np.ndarray, links: np.ndarray) -> Part:
    return Part(columns[..., 0], columns[..., 1:], links)


def _pulled_through(origin: Sequence[Origin], by: Sequence[Part]) -> list[Relative]:
    """Return derivatives by the distribution of w from those by the parts of x."""
    (first, *plates), (of_first, *of_plates) = origin, by
    moves = first.root.mT @ np.concatenate([of_first.mean[..., None], of_first.root], -1)
    result = []
    for part, change in zip(plates, of_plates, strict=True):
        by_slope, by_root = sides(change.root)
        by_moves = np.concatenate([change.mean[..., None], by_slope], -1)
        moves = moves + np.einsum("bij,bik->jk", part.slope, by_moves)
        before = part.root.mT
        by_gain = before[1:][: len(change.links)] @ change.links
        solved = before @ part.chain.solve_transposed(by_moves)
        result.append(Relative(solved, before @ by_root, by_gain))
    return [Relative(moves[..., :1], moves[..., 1:], of_first.links), *result]


def _by_moments(origin: Sequence[Origin], parts: Sequence[Coordinates]) -> list[Relative]:
    """Return the distribution of w of which coordinates are the moments."""
    (first, *plates), (_, *origins) = parts, origin
    moves = first.beside
    root = np.linalg.cholesky(first.moments - moves @ moves.mT)
    result = [Relative(moves, root, first.c)]
    for part, own in zip(plates, origins, strict=True):
        moves = _given_shared(part, first, root)
        covariance, gain = part.moments - moves @ moves.mT, part.c
        if len(gain):
            found = neighbours(own, part, moves)
            gain = found.gain
            covariance[1:] -= gain @ found.cross.mT
        result.append(Relative(moves, np.linalg.cholesky(covariance), gain))
    return result


def _given_shared(part: Coordinates, first: Coordinates, root: np.ndarray) -> np.ndarray:
    """Return E w beside its slope by the new standard normal of the shared coordinates."""
    slope = part.beside[..., 1:] - part.a[..., None] * first.a[0]
    return np.concatenate([part.a[..., None], (inverse_of_lower(root) @ slope.mT).mT], -1)


def _by_coordinates(
    origin: Sequence[Origin],
    parts: Sequence[Coordinates],
    relative: Sequence[Relative],
    by: Sequence[Relative],
) -> list[Coordinates]:
    """Return derivatives by coordinates from those by the distribution of w."""
    (first, *plates), (shared, *blocks), (by_shared, *by_blocks) = parts, relative, by
    by_mean, by_factor = by_shared.moves[..., 0], by_shared.root
    result = []
    for at, part, own, change in zip(origin[1:], plates, blocks, by_blocks, strict=True):
        moments = through_cholesky(own.root, change.root)
        moves, by_c = change.moves - 2 * moments @ own.moves, part.c
        if len(by_c):
            found = neighbours(at, part, own.moves)
            added, within, by_c = by_neighbours(at, own.moves, found, moments, change.gain)
            moves, moments = moves + added, moments + within
        beside = moves[..., 1:] @ inverse_of_lower(shared.root)
        by_factor = by_factor - np.einsum("bij,bik->jk", beside, own.moves[..., 1:])
        by_mean = by_mean - np.einsum("bij,bi->j", beside, part.a)
        a = moves[..., 0] - beside @ first.a[0]
        result.append(Coordinates(a, np.concatenate([beside / ROOT, ROOT * moments], -1), by_c))
    moments = through_cholesky(shared.root, by_factor)
    a = by_mean - 2 * times(moments, first.a)
    return [Coordinates(a, ROOT * moments, first.c), *result]


def _first_order(origin: Origin, part: Coordinates) -> Relative:
    """Return how the distribution of w begins to change."""
    root = lower_with_half_diagonal(part.moments - np.eye(part.a.shape[1]))
    return Relative(part.beside, root, np.linalg.solve(origin.before.mT, part.c.mT).mT)


def _by_precision(origin: Sequence[Origin], parts: Sequence[Coordinates]) -> list[Relative] | None:
    """Return the distribution of w with the natural parameters of coordinates."""
    (first, *plates) = parts
    precision, weighted = 2 * np.eye(first.a.shape[1]) - first.moments[0], first.a[0]
    found = []
    for at, part in zip(origin[1:], plates, strict=True):
        block = by_precision(at, part) if len(part.c) else _block_by_precision(part)
        if block is None:
            return None
        own, by_u, by_one = block
        precision, weighted = precision - by_u, weighted + by_one
        found.append(own)
    covariance = inverse(precision[None])
    if covariance is None:
        return None
    moves = np.concatenate([(covariance @ weighted)[..., None], np.linalg.cholesky(covariance)], -1)
    result = [Relative(moves[..., :1], moves[..., 1:], first.c)]
    for own in found:
        by_shared = own.moves[..., 1:] @ moves
        by_shared[..., 0] += own.moves[..., 0]
        result.append(own._replace(moves=by_shared))
    return result


def _block_by_precision(part: Coordinates) -> tuple[Relative, np.ndarray, np.ndarray] | None:
    """Return independent blocks, and what they add to the precision of u and of (1, u)."""
    covariance = inverse(2 * np.eye(part.a.shape[1]) - part.moments)
    if covariance is None:
        return None
    moves = covariance @ part.beside
    products = np.einsum("bij,bik->jk", part.beside[..., 1:], moves)
    own = Relative(moves, np.linalg.cholesky(covariance), part.c)
    return own, products[:, 1:], products[:, 0]
