"""Implement the Gaussian of blocks that are independent, or a chain, given what they share."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, device, namespace
from moment_calculus.operations.shapes.chains import Chain
from moment_calculus.operations.shapes.plates import Blocks, site_of_blocks
from moment_calculus.values import Gaussian, Propagation
from moment_guides.families.gaussian import LatentVector, PartOfVector

MOST_OF_A_COVARIANCE = 5000  # most coordinates of which all covariances are written down


class PlateNormalBase:
    """Base class of the hosts' distributions of a latent vector with plates.

    Its blocks are x = m + W u + y, given the standard normal u of the shared coordinates, with
    y = L e, or y_t = A_t y_{t−1} + L_t e_t, and [W, L] = diag(s) [V, U]; the factor has A, and of
    [V, U] the elements left of the ones.
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

    @cached_property
    def chains(self) -> list[Chain]:
        """Return the transitions of each part."""
        return [Chain(_taken(self.parameters[2], part.links)) for part in self.vector.parts]

    @property
    def mean(self) -> Array:
        """Return the mean, [d]."""
        return self.loc

    @property
    def variance(self) -> Array:
        """Return the variance of each coordinate, [d]."""
        return (self.shared * self.shared).sum(-1) + self.blocks.variance

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
        xp = namespace(self.shared)
        every = xp.arange(size, device=device(self.shared))
        return self.shared @ self.shared.mT + self.blocks.of_all_pairs(every, every)

    @cached_property
    def shared(self) -> Array:
        """Return each coordinate's row of W, or of L if it is shared, [d, p]."""
        xp, shared = namespace(self.roots[0]), self.vector.parts[0].places.size
        rows = [
            xp.reshape(root[..., :shared], (part.places.size, shared))
            for part, root in zip(self.vector.parts, self.roots, strict=True)
        ]
        return _taken(xp.concat(rows), self.vector.order)

    @cached_property
    def blocks(self) -> Blocks:
        """Return the covariance of the blocks of all plates, given the shared coordinates."""
        places, roots = self.vector.blocks, self.roots[1:]
        width = places.coordinates.shape[1]
        squares = [_padded(root[..., root.shape[-1] - root.shape[-2] :], width) for root in roots]
        xp, none = namespace(squares[0]), 0 * squares[0][:1]
        root = xp.concat([none, *squares])
        if not any(plate.is_chain for plate in self.vector.plates):
            return Blocks(Chain(root[:0]), root, places)
        links = list[Array]()
        for square, chain in zip(squares, self.chains[1:], strict=True):
            links += [none, _padded(chain.links, width) if chain.powers else 0 * square[1:]]
        return Blocks(Chain(xp.concat(links)), root, places)

    def value(self, name: str, propagation: Propagation) -> Gaussian:
        """Return the Gaussian value of a latent site that has this posterior."""
        return site_of_blocks(name, self.parameters[0], self.shared, self.blocks, propagation)

    def image(self, noise: Array) -> Array:
        """Return draws [..., d] from standard normal noise [..., d]."""
        xp, start, batch = namespace(self.roots[0]), 0, noise.shape[:-1]
        moves, shared = list[Array](), noise[..., : self.vector.parts[0].places.size]
        for part, root, chain in zip(self.vector.parts, self.roots, self.chains, strict=True):
            end = start + part.places.size
            own = xp.reshape(noise[..., start:end], (*batch, *part.places.shape, 1))
            y = chain.solve(root[..., part.shared :] @ own)[..., 0]
            slope = root[..., : part.shared]
            moved = y + (slope * shared[..., None, None, : part.shared]).sum(-1)
            moves.append(xp.reshape(moved, (*batch, part.places.size)))
            start = end
        together = xp.concat(moves, axis=-1)
        where = xp.asarray(self.vector.order, device=device(together))
        return self.parameters[0] + xp.take(together, where, axis=-1)

    def log_prob(self, value: Array) -> Array:
        """Return the log density of vectors [..., d], [...]."""
        xp, deviation = namespace(self.roots[0]), value - self.parameters[0]
        u, squares = deviation[..., :0], 0.0
        for part, root, chain in zip(self.vector.parts, self.roots, self.chains, strict=True):
            where = xp.asarray(part.places.ravel(), device=device(deviation))
            own = xp.reshape(
                xp.take(deviation, where, axis=-1), (*value.shape[:-1], *part.places.shape)
            )
            if part.shared:
                own = own - (root[..., : part.shared] * u[..., None, None, :]).sum(-1)
            own = chain.remainders(own[..., None])
            own = xp.linalg.solve(root[..., part.shared :], own)[..., 0]
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
    own = _taken(factor, part.factors)
    ends = [xp.full((blocks, 1), end, dtype=own.dtype, device=device(own)) for end in (0.0, 1.0)]
    where = xp.asarray(places.ravel(), device=device(own))
    return xp.reshape(
        xp.take(xp.concat([own, *ends], axis=-1), where, axis=-1), (blocks, *places.shape)
    )


def _padded(matrices: Array, width: int) -> Array:
    """Return matrices [n, k, k] with zeros up to a width."""
    xp, (count, own, _) = namespace(matrices), matrices.shape
    options = {"dtype": matrices.dtype, "device": device(matrices)}
    wide = xp.concat([matrices, xp.zeros((count, own, width - own), **options)], axis=-1)
    return xp.concat([wide, xp.zeros((count, width - own, width), **options)], axis=-2)


def _taken(array: Array, places: np.ndarray) -> Array:
    """Return elements [*places] of the first axis of an array."""
    xp = namespace(array)
    where = xp.asarray(places.ravel(), device=device(array))
    return xp.reshape(xp.take(array, where, axis=0), (*places.shape, *array.shape[1:]))
