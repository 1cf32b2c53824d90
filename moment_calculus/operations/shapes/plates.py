"""A latent vector of blocks that are independent given what they share.

Its covariance is G Gᵀ + D with few columns in G and blocks in D: that of any two elements takes
two rows of G, and two of D if they are in one block, so that the whole is never formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_calculus.numerics.arrays import Array, device, namespace
from moment_calculus.values import Gaussian, Spread, Ties
from moment_calculus.values.gaussian import Root
from moment_calculus.values.propagation import Propagation
from moment_calculus.values.spread import all_elements
from moment_calculus.values.step import Added, Entries


@dataclass(frozen=True, eq=False)
class _ArrowRoot(Root):
    """Step of such a vector."""

    shared: Array = None  # G, [d, p]
    inside: Array = None  # rows of the factors of the blocks, [d, k]
    blocks: Array = None  # the number of the block of each element, [d]
    mates: Array = None  # places of the elements of its block, and of others, [d, k]

    def entries(self, value: Gaussian) -> Entries:
        """Return all entries, whose covariances the step knows."""
        return Entries.of(value)

    def own(self, value: Gaussian) -> Added:
        """Return the covariance, which is not formed."""
        mates = self.blocks[self.mates]
        is_same = mates == self.blocks[:, None]
        inside = (self.inside[self.mates] * self.inside[:, None, :]).sum(-1)
        inside = namespace(inside).where(is_same, inside, 0 * inside)

        def times(cotangents: Array) -> Array:
            by_shared = (cotangents @ self.shared) @ self.shared.mT
            return by_shared + (cotangents[..., self.mates] * inside).sum(-1)

        return Added(value.variance, times)

    def covariance_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Return the covariances of pairs of elements."""
        xp = namespace(self.shared)
        by_shared = (self.shared[ours] * self.shared[theirs]).sum(-1)
        inside = (self.inside[ours] * self.inside[theirs]).sum(-1)
        is_same = self.blocks[ours] == self.blocks[theirs]
        return by_shared + xp.where(is_same, inside, xp.zeros_like(inside))

    def covariances_of_entries(self, ours: Array, theirs: Array, variance: Array) -> Array:
        """Return the covariances of two sets of elements with each other."""
        xp = namespace(self.shared)
        by_shared = self.shared[ours] @ self.shared[theirs].mT
        inside = self.inside[ours] @ self.inside[theirs].mT
        is_same = self.blocks[ours][..., :, None] == self.blocks[theirs][..., None, :]
        return by_shared + xp.where(is_same, inside, xp.zeros_like(inside))


def arrow_site(
    name: str,
    mean: Array,
    shared: Array,
    inside: Array,
    blocks: np.ndarray,
    propagation: Propagation,
) -> Gaussian:
    """Make the value of a latent vector [d] of blocks that are independent given what they share.

    Its covariance is shared sharedᵀ, and inside insideᵀ between elements of one block; ``blocks``
    has the number of the block of each element, −1 for those that no block has.
    """
    variance = (shared * shared).sum(-1) + (inside * inside).sum(-1)
    xp, of_host = namespace(mean), device(mean)
    places = (xp.asarray(array, device=of_host) for array in (blocks, _mates(blocks)))
    return Gaussian(
        mean,
        Spread(variance),
        _ArrowRoot(False, None, shared, inside, *places),
        axis=None,
        support=all_elements([name]),
        ties=Ties.ALL,
        propagation=propagation,
    )


def _mates(blocks: np.ndarray) -> np.ndarray:
    """Return the places of the elements of each element's block, and others to fill the rows."""
    order = np.argsort(blocks, kind="stable")
    numbers, starts, counts = np.unique(blocks[order], return_index=True, return_counts=True)
    width = counts[numbers >= 0].max(initial=1)
    first = starts[np.searchsorted(numbers, blocks)]
    return order[np.minimum(first[:, None] + np.arange(width), len(blocks) - 1)]
