"""A latent vector of blocks that are independent, or a chain, given what they share.

Its covariance is G Gᵀ + D with few columns in G; D has blocks, and what transitions between these
add. That of any two elements takes two rows of G and a few small products, so that the whole is
never formed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
        xp, width = namespace(self.rows), self.rows.shape[-1]
        ours, theirs = self._places[ours], self._places[theirs]
        chains = xp.asarray(self.where.chains, device=device(self.rows))
        is_one_chain = chains[ours // width] == chains[theirs // width]
        is_later = ours // width >= theirs // width
        later, earlier = xp.where(is_later, ours, theirs), xp.where(is_later, theirs, ours)
        distances = xp.where(is_one_chain, later // width - earlier // width, 0 * later)
        moved = self.chain.moved(self._unit(later), later // width, distances)
        covariances = (moved * self.rows[earlier]).sum(-1)
        return xp.where(is_one_chain, covariances, xp.zeros_like(covariances))

    def of_all_pairs(self, ours: Array, theirs: Array) -> Array:
        """Return the covariances of coordinates [..., d] with others [..., e], [..., d, e]."""
        if self.chain.steps:
            return self.of_pairs(ours[..., :, None], theirs[..., None, :])
        xp, width = namespace(self.rows), self.rows.shape[-1]
        ours, theirs = self._places[ours], self._places[theirs]
        covariances = self._unit(ours) @ self.rows[theirs].mT
        is_same = ours[..., :, None] // width == theirs[..., None, :] // width
        return xp.where(is_same, covariances, xp.zeros_like(covariances))

    def times(self, cotangents: Array) -> Array:
        """Return D times rows, [..., d]."""
        xp, (blocks, width) = namespace(cotangents), self.where.coordinates.shape
        wide = xp.concat([cotangents, xp.zeros_like(cotangents[..., :1])], axis=-1)
        order = xp.asarray(self.where.coordinates.ravel(), device=device(cotangents))
        terms = xp.take(wide, order, axis=-1)
        terms = xp.reshape(terms, (*cotangents.shape[:-1], blocks, width, 1))
        terms = self.chain.solve_transposed(terms)
        terms = self.chain.solve(self.roots @ (self.roots.mT @ terms))
        flat = xp.reshape(terms, (*cotangents.shape[:-1], blocks * width))
        return xp.take(flat, self._places, axis=-1)

    @property
    def _places(self) -> Array:
        return namespace(self.roots).asarray(self.where.places, device=device(self.roots))

    def _unit(self, places: Array) -> Array:
        """Return the rows of the identity, [..., k]."""
        width = self.roots.shape[-1]
        return constants(np.eye(width), self.roots)[places % width]


@dataclass(frozen=True, eq=False)
class _BlocksRoot(Root):
    """Step of such a vector."""

    shared: Array = None  # G, [d, p]
    blocks: Blocks | None = None

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
