"""A latent vector of blocks that are independent, or a chain, given what they share.

Its covariance is G Gᵀ + D with few columns in G; D has blocks, and what transitions between these
add. That of any two elements takes two rows of G and a few small products, so that the whole is
never formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import Array, constants, device, namespace
from moment_calculus.operations.shapes.chains import Chain
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.gaussian import Root
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from moment_calculus.values.step import Added, Entries


class Places(NamedTuple):
    """Where the coordinates of a vector are in blocks of k, whose last ones may be empty."""

    coordinates: np.ndarray  # of each place, or their number of none, [blocks, k]
    places: np.ndarray  # of each coordinate, as a number of block and place, [d]
    chains: np.ndarray  # of each block, [blocks]


@dataclass(frozen=True, eq=False)
class Blocks:
    """The covariance D of a vector of blocks."""

    chain: Chain  # of all blocks; without transitions if they are independent
    roots: Array  # of what a block adds to its transition, lower triangular, [blocks, k, k]
    where: Places

    @cached_property
    def rows(self) -> Array:
        """Return for each place its row of the covariance of its block, [blocks k, k]."""
        covariances = self.chain.covariances(self.roots @ self.roots.mT)
        return namespace(covariances).reshape(covariances, (-1, covariances.shape[-1]))

    @property
    def variance(self) -> Array:
        """Return the variance of each coordinate, [d]."""
        return (self._unit(self._places) * self.rows[self._places]).sum(-1)

    def of_pairs(self, ours: Array, theirs: Array) -> Array:
        """Return the covariances of pairs of coordinates."""
        ours, theirs, chains = self._here(ours, theirs)
        xp, width = namespace(ours), self.rows.shape[-1]
        is_one_chain = chains[ours // width] == chains[theirs // width]
        is_later = ours // width >= theirs // width
        later, earlier = xp.where(is_later, ours, theirs), xp.where(is_later, theirs, ours)
        distances = xp.where(is_one_chain, later // width - earlier // width, 0 * later)
        moved = self.chain.moved(self._unit(later), later // width, distances)
        return self._of(is_one_chain, (moved * self.rows[earlier]).sum(-1))

    def of_all_pairs(self, ours: Array, theirs: Array) -> Array:
        """Return the covariances of coordinates [..., d] with others [..., e], [..., d, e]."""
        if self.chain.steps:
            return self.of_pairs(ours[..., :, None], theirs[..., None, :])
        (ours, theirs, _), width = self._here(ours, theirs), self.rows.shape[-1]
        is_same = ours[..., :, None] // width == theirs[..., None, :] // width
        return self._of(is_same, self._unit(ours) @ self.rows[theirs].mT)

    def times(self, cotangents: Array) -> Array:
        """Return D times rows, [..., d]."""
        xp, (blocks, width) = namespace(cotangents), self.where.coordinates.shape
        wide = xp.concat([cotangents, xp.zeros_like(cotangents[..., :1])], axis=-1)
        terms = xp.take(wide, self._host(self.where.coordinates.ravel()), axis=-1)
        terms = xp.reshape(terms, (*cotangents.shape[:-1], blocks, width, 1))
        terms = self.chain.solve_transposed(terms)
        terms = self.chain.solve(self.roots @ (self.roots.mT @ terms))
        flat = xp.reshape(terms, (*cotangents.shape[:-1], blocks * width))
        return xp.take(flat, self._places, axis=-1)

    def _here(self, *coordinates: Array) -> tuple[Array, ...]:
        """Return the places of coordinates, and the chain of each block; known ones by NumPy."""
        where, chains = (self._like(coordinates[0], known) for known in self.where[1:])
        return (*(where[each] for each in coordinates), chains)

    def _like(self, like: Array, known: np.ndarray) -> Array:
        return known if isinstance(like, np.ndarray) else self._host(known)

    def _host(self, known: np.ndarray) -> Array:
        return namespace(self.roots).asarray(known, device=device(self.roots))

    @property
    def _places(self) -> Array:
        return self._host(self.where.places)

    def _of(self, mask: Array, covariances: Array) -> Array:
        """Return covariances where the mask is true, and zeros elsewhere."""
        xp = namespace(covariances)
        return xp.where(self._host(mask), covariances, xp.zeros_like(covariances))

    def _unit(self, places: Array) -> Array:
        """Return the rows of the identity, [..., k]."""
        width = self.roots.shape[-1]
        return constants(np.eye(width), self.roots)[places % width]


@dataclass(frozen=True, eq=False)
class _BlocksRoot(Root):
    """Step of such a vector."""

    shared: Array = None  # G, [d, p]
    blocks: Any = None  # Blocks

    def entries(self, value: Gaussian) -> Entries:
        """Return all entries, whose covariances the step knows."""
        return Entries.of(value)

    def own(self, value: Gaussian) -> Added:
        """Return the covariance, which is not formed."""

        def times(cotangents: Array) -> Array:
            by_shared = (cotangents @ self.shared) @ self.shared.mT
            return by_shared + self.blocks.times(cotangents)

        return Added(value.variance, times)

    def covariance_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Return the covariances of pairs of elements."""
        by_shared = (self.shared[ours] * self.shared[theirs]).sum(-1)
        return by_shared + self.blocks.of_pairs(ours, theirs)

    def covariances_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Return the covariances of two sets of elements with each other."""
        by_shared = self.shared[ours] @ self.shared[theirs].mT
        return by_shared + self.blocks.of_all_pairs(ours, theirs)


def site_of_blocks(
    name: str, mean: Array, shared: Array, blocks: Blocks, propagation: Propagation
) -> Gaussian:
    """Make the value of a latent vector [d] of blocks, given what they share.

    Its covariance is shared sharedᵀ and that of the blocks.
    """
    variance = (shared * shared).sum(-1) + blocks.variance
    return Gaussian(
        mean,
        Spread(variance),
        _BlocksRoot(False, None, shared, blocks),
        axis=None,
        support=all_elements([name]),
        ties=Ties.ALL,
        propagation=propagation,
    )
