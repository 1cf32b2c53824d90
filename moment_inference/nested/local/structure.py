"""Blocks of one or two coordinates beside a border, as the pattern of a precision has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from moment_inference.nested.factors.ordering import Ordering, bordered_orderings
from moment_inference.nested.sparse import Pattern, Sparse

LARGEST = 2  # coordinates of a block that quadrature can integrate
BORDER = 12  # most coordinates of a border, whose nodes are twice their square


@dataclass(frozen=True, eq=False)
class Structure:
    """A border, and blocks that no entry of the precision couples with each other.

    Attributes:
        border: its coordinates, [p].
        blocks: the coordinates of each block, [J, k]; −1 in a block that has fewer.
        block: of each coordinate, −1 in the border, [d].
        place: of each coordinate in its block, or in the border, [d].
    """

    border: np.ndarray
    blocks: np.ndarray
    block: np.ndarray
    place: np.ndarray

    @classmethod
    def of(cls, ordering: Ordering) -> Structure:
        """Return the structure of an ordering whose components are small."""
        block, place = ordering.components, np.zeros(len(ordering.components), int)
        place[ordering.border] = np.arange(len(ordering.border))
        inner = np.flatnonzero(block >= 0)
        inner = inner[np.argsort(block[inner], kind="stable")]
        sizes = np.bincount(block[inner])
        place[inner] = np.arange(len(inner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        blocks = np.full((len(sizes), sizes.max(initial=1)), -1)
        blocks[block[inner], place[inner]] = inner
        return cls(ordering.border, blocks, block, place)

    def precision_parts(self, precision: Sparse) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a precision in blocks [g, J, k, k], beside the border [g, J, k, p], and in it."""
        points, (count, size) = len(precision.values), self.blocks.shape
        inside = np.zeros((points, count, size, size))
        inside[:, self.blocks < 0] = np.eye(size)[np.nonzero(self.blocks < 0)[1]]
        beside = np.zeros((points, count, size, len(self.border)))
        within = np.zeros((points, len(self.border), len(self.border)))
        rows, columns = precision.rows, precision.columns
        is_inner, ends_in_border = self.block[rows] >= 0, self.block[columns] < 0
        for target, mask in (
            (inside, is_inner & ~ends_in_border),
            (beside, is_inner & ends_in_border),
            (within, ~is_inner & ends_in_border),
        ):
            at = (self.block[rows[mask]],) if target is not within else ()
            at = (*at, self.place[rows[mask]], self.place[columns[mask]])
            target[(slice(None), *at)] = precision.values[:, mask]
        return inside, beside, within

    def design_parts(self, design: Sparse) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of a design in the border [g, n, p], and in rows' blocks [g, n, k]."""
        points, rows = len(design.values), design.shape[0]
        border = np.zeros((points, rows, len(self.border)))
        inner = np.zeros((points, rows, self.blocks.shape[1]))
        in_border = self.block[design.columns] < 0
        for target, mask in ((border, in_border), (inner, ~in_border)):
            target[:, design.rows[mask], self.place[design.columns[mask]]] = design.values[:, mask]
        return border, inner

    def row_blocks(self, pattern: Pattern) -> np.ndarray:
        """Return the block of each row of a design, [n]; the number of blocks if it has none."""
        blocks = np.full(pattern.shape[0], len(self.blocks))
        of_entries = self.block[pattern.columns]
        inner = of_entries >= 0
        blocks[pattern.rows[inner]] = of_entries[inner]
        return blocks


def structure_of(pattern: Pattern) -> Structure | None:
    """Return the structure of a precision with the smallest border; None if there is none."""
    return pattern.remember("local structure", lambda: _structure(pattern))


def _structure(pattern: Pattern) -> Structure | None:
    fitting = [each for each in bordered_orderings(pattern) if _is_local(each)]
    if not fitting:
        return None
    return Structure.of(min(fitting, key=lambda each: len(each.border)))


def _is_local(ordering: Ordering) -> bool:
    inner = ordering.components[ordering.components >= 0]
    largest = np.bincount(inner).max(initial=0)
    return 0 < largest <= LARGEST and len(ordering.border) <= BORDER
