"""A latent vector of blocks that are independent given what they share.

Its covariance is G Gᵀ + D with few columns in G and blocks in D: that of any two elements takes
two rows of G, and two of D if they are in one block, so that the whole is never formed.
"""

from __future__ import annotations

from dataclasses import dataclass

from moment_calculus.numerics.arrays import Array, namespace, times_rows
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

    def entries(self, value: Gaussian) -> Entries:
        """Return all entries, whose covariances the step knows."""
        return Entries.of(value)

    def own(self, value: Gaussian) -> Added:
        """Return the covariance, which is not formed."""
        xp = namespace(self.shared)

        def times(cotangents: Array) -> Array:
            products = times_rows(self.shared, cotangents @ self.shared)
            weighted = cotangents[..., None] * self.inside
            same = xp.astype(self.blocks[:, None] == self.blocks, self.inside.dtype)
            return products + ((same @ weighted) * self.inside).sum(-1)

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
    blocks: Array,
    propagation: Propagation,
) -> Gaussian:
    """Make the value of a latent vector [d] of blocks that are independent given what they share.

    Its covariance is Σ shared sharedᵀ, and inside insideᵀ between elements of one block.
    """
    variance = (shared * shared).sum(-1) + (inside * inside).sum(-1)
    return Gaussian(
        mean,
        Spread(variance),
        _ArrowRoot(shared=shared, inside=inside, blocks=blocks),
        axis=None,
        support=all_elements([name]),
        ties=Ties.ALL,
        propagation=propagation,
    )
