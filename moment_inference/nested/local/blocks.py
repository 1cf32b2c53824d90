"""A Gaussian field by its border, and by its blocks given the border."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_inference.nested.local.structure import Structure
from moment_inference.nested.sparse import Sparse


@dataclass(frozen=True, eq=False)
class Blocks:
    """The covariances of a field at some points, and the rows of its predictors."""

    border: np.ndarray  # a root of the border's covariance, [g, p, p]
    root: np.ndarray  # of the blocks' covariances given the border, [g, J, k, k]
    following: np.ndarray  # slopes of the blocks' means by the border, [g, J, k, p]
    of_border: np.ndarray  # slopes of predictors by the border, blocks following, [g, n, p]
    of_block: np.ndarray  # the same by the standardised block of the row, [g, n, k]
    rows: np.ndarray  # sorted by block, those without one last, [n]
    starts: np.ndarray  # of the blocks that have rows, in these
    present: np.ndarray  # the blocks that have rows; their number stands for none
    count: int  # of blocks

    @classmethod
    def of(cls, precision: Sparse, design: Sparse, structure: Structure) -> Blocks:
        """Return the parts of a Gaussian field."""
        inside, beside, within = structure.precision_parts(precision)
        covariance = np.linalg.inv(inside)
        following = -covariance @ beside
        border = within + np.einsum("gjkp,gjkq->gpq", beside, following)
        root = np.linalg.cholesky(covariance)
        on_border, on_block = structure.design_parts(design)
        of_rows = structure.row_blocks(design.pattern)
        taken = np.minimum(of_rows, len(structure.blocks) - 1)  # rows without a block have slope 0
        on_border = on_border + np.einsum("gnk,gnkp->gnp", on_block, following[:, taken])
        on_block = np.einsum("gnk,gnkl->gnl", on_block, root[:, taken])
        rows = np.argsort(of_rows, kind="stable")
        present, starts = np.unique(of_rows[rows], return_index=True)
        border = np.linalg.cholesky(np.linalg.inv(border))
        count = len(structure.blocks)
        return cls(border, root, following, on_border, on_block, rows, starts, present, count)

    def border_at(self, nodes: np.ndarray) -> np.ndarray:
        """Return deviations of the border at standard nodes [b, p], [g, b, p]."""
        return nodes @ np.swapaxes(self.border, 1, 2)

    def follow(self, border: np.ndarray) -> np.ndarray:
        """Return how the blocks' means follow deviations of the border, [g, b, J, k]."""
        return np.einsum("gjkp,gbp->gbjk", self.following, border)

    def deviations(self, nodes: np.ndarray, inner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what the predictors deviate by the border [g, b, n] and by the block [g, t, n]."""
        by_border = self.border_at(nodes) @ np.swapaxes(self.of_border, 1, 2)
        return by_border, inner @ np.swapaxes(self.of_block, 1, 2)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return sums of rows [g, m, n] by block, those without one last, [g, m, J + 1]."""
        sums = np.zeros((*values.shape[:2], self.count + 1))
        if len(self.rows):
            is_sorted = (np.diff(self.rows) == 1).all()
            ordered = values if is_sorted else values[..., self.rows]
            sums[..., self.present] = np.add.reduceat(ordered, self.starts, axis=2)
        return sums

    def moments(self, shares: np.ndarray, inner: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return means, variances, third moments [g, b, J, k] by shares [g, b, t, J] of nodes."""
        places = np.einsum("gjkl,tl->gtjk", self.root, inner)
        first, second, third = (
            np.einsum("gbtj,gtjk->gbjk", shares, power) for power in (places, places**2, places**3)
        )
        variance = second - first**2
        return first, variance, third - first * (3 * variance + first**2)

    def variances(self, within: np.ndarray) -> np.ndarray:
        """Return the variances of the blocks' coordinates, then of the border's, [g, d]."""
        shared = self.following @ self.border[:, None]
        inside = (self.root**2).sum(3) + (shared**2).sum(3)
        return np.concatenate([inside[:, within], (self.border**2).sum(2)], 1)
