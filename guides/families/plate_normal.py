"""Implement the Gaussian of blocks that are independent given what they share: an arrow."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, device, namespace
from moment_calculus.operations.shapes.plates import arrow_site
from moment_calculus.values import Gaussian, Propagation
from moment_guides.families.gaussian import LatentVector, PartOfVector

MOST_OF_A_COVARIANCE = 5000  # most coordinates of which all covariances are written down


class PlateNormalBase:
    """Base class of the hosts' distributions of a latent vector with plates.

    Its blocks are x = m + W u + L e, given the standard normal u of the shared coordinates, with
    [W, L] = diag(s) [V, U]; of [V, U] there are the elements left of the ones.
    """

    loc: Array  # m, [d]
    scale: Array  # s, [d]
    factor: Array  # of all parts, one after another
    vector: LatentVector

    @property
    @abstractmethod
    def parameters(self) -> tuple[Array, Array, Array]:
        """Return m, s and the factor as arrays of the host."""

    @cached_property
    def roots(self) -> list[Array]:
        """Return W beside L of each part, [blocks, k, p + k]."""
        _, scale, factor = self.parameters
        scales = [_taken(scale, part.places) for part in self.vector.parts]
        pairs = zip(self.vector.parts, scales, strict=True)
        return [scale[..., None] * _unit(part, factor) for part, scale in pairs]

    @property
    def mean(self) -> Array:
        """Return the mean, [d]."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Return the variance of each coordinate, [d]."""
        shared, inside = self._rows
        return (shared * shared).sum(-1) + (inside * inside).sum(-1)

    @property
    def covariance_matrix(self) -> Array:
        """Return the covariance of all coordinates, [d, d]; raise above 5000 of them."""
        if (size := self.vector.size) > MOST_OF_A_COVARIANCE:
            raise UnsupportedMoments(
                f"the covariance of all {size} coordinates would be a matrix of {size} x {size}; "
                f"{MOST_OF_A_COVARIANCE} are the most",
                sites=self.vector.names,
                remedy="use sample_posterior, median and quantiles",
            )
        shared, inside = self._rows
        xp, blocks = namespace(shared), self.vector.blocks
        same = xp.asarray(blocks[:, None] == blocks, device=device(shared))
        products = inside @ inside.mT
        return shared @ shared.mT + xp.where(same, products, xp.zeros_like(products))

    @property
    def _rows(self) -> tuple[Array, Array]:
        """Return for each coordinate its row of W, and that of L."""
        xp, (root, *others) = namespace(self.roots[0]), self.roots
        shared, size = root.shape[-1], max(other.shape[-2] for other in others)
        rows, inside = [root[0]], [_padded(root[0][:, :0], size)]
        for other in others:
            wide = xp.reshape(other, (-1, other.shape[-1]))
            rows.append(wide[:, :shared])
            inside.append(_padded(wide[:, shared:], size))
        order = self._order
        return _taken(xp.concat(rows), order), _taken(xp.concat(inside), order)

    @property
    def _order(self) -> np.ndarray:
        """Return where each coordinate is if those of the parts stand one after another."""
        return np.argsort(np.concatenate([part.places.ravel() for part in self.vector.parts]))

    def value(self, name: str, propagation: Propagation) -> Gaussian:
        """Return the Gaussian value of a latent site that has this posterior."""
        return arrow_site(name, self.parameters[0], *self._rows, self.vector.blocks, propagation)

    def image(self, noise: Array) -> Array:
        """Return draws [..., d] from standard normal noise [..., d]."""
        xp, start, batch = namespace(self.roots[0]), 0, noise.shape[:-1]
        parts = list[Array]()
        for part, root in zip(self.vector.parts, self.roots, strict=True):
            end = start + part.places.size
            own = xp.reshape(noise[..., start:end], (*batch, *part.places.shape))
            slope, root = root[..., : part.shared], root[..., part.shared :]
            by_shared = (slope * noise[..., None, None, : part.shared]).sum(-1)
            moved = by_shared + (root * own[..., None, :]).sum(-1)
            parts.append(xp.reshape(moved, (*batch, part.places.size)))
            start = end
        together = xp.concat(parts, axis=-1)
        where = xp.asarray(self._order, device=device(together))
        return self.parameters[0] + xp.take(together, where, axis=-1)

    def log_prob(self, value: Array) -> Array:
        """Return the log density of vectors [..., d], [...]."""
        xp, deviation = namespace(self.roots[0]), value - self.parameters[0]
        u, squares = deviation[..., :0], 0.0
        for part, root in zip(self.vector.parts, self.roots, strict=True):
            where = xp.asarray(part.places.ravel(), device=device(deviation))
            own = xp.reshape(
                xp.take(deviation, where, axis=-1), (*value.shape[:-1], *part.places.shape)
            )
            if part.shared:
                own = own - (root[..., : part.shared] * u[..., None, None, :]).sum(-1)
            own = xp.linalg.solve(root[..., part.shared :], own[..., None])[..., 0]
            u = u if part.shared else own[..., 0, :]
            squares = squares + (own * own).sum((-2, -1))
        return -0.5 * squares - xp.log(self.parameters[1]).sum() - self._half_log_of_circles

    def entropy(self) -> Array:
        """Return −E log q."""
        scale = self.parameters[1]
        return namespace(scale).log(scale).sum() + self._half_log_of_circles + self.vector.size / 2

    @property
    def _half_log_of_circles(self) -> float:
        return self.vector.size * math.log(2 * math.pi) / 2


def _unit(part: PartOfVector, factor: Array) -> Array:
    """Return [V, U], [blocks, k, p + k]."""
    xp, (blocks, width), count = namespace(factor), part.places.shape, part.factors.shape[1]
    places = np.full([width, part.shared + width], count)  # of a zero
    places[np.tril_indices(width, part.shared - 1, part.shared + width)] = np.arange(count)
    places[np.arange(width), part.shared + np.arange(width)] = count + 1  # of a one
    own = xp.reshape(factor[part.start : part.start + part.factors.size], (blocks, count))
    ends = [xp.full((blocks, 1), end, dtype=own.dtype, device=device(own)) for end in (0.0, 1.0)]
    where = xp.asarray(places.ravel(), device=device(own))
    return xp.reshape(
        xp.take(xp.concat([own, *ends], axis=-1), where, axis=-1), (blocks, *places.shape)
    )


def _padded(rows: Array, width: int) -> Array:
    """Return rows [n, k] with zeros up to a width."""
    xp = namespace(rows)
    rest = xp.zeros((rows.shape[0], width - rows.shape[1]), dtype=rows.dtype, device=device(rows))
    return xp.concat([rows, rest], axis=-1)


def _taken(array: Array, places: np.ndarray) -> Array:
    """Return elements [*places] of the first axis of an array."""
    xp = namespace(array)
    where = xp.asarray(places.ravel(), device=device(array))
    return xp.reshape(xp.take(array, where, axis=0), (*places.shape, *array.shape[1:]))
