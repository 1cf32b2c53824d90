"""Where the entries of a pattern are in the blocks of bands and their border."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from moment_inference.nested.factors.ordering import Group, Ordering
from moment_inference.nested.sparse import Pattern


class Places:
    """The slots of an ordering: coordinates in [padded], entries in blocks of bands, flattened.

    The blocks are [all on the diagonals, all below them, 0] of one band after another.
    """

    def __init__(self, ordering: Ordering) -> None:
        d = len(ordering.components)
        self.ordering = ordering
        self.slots = np.full(d, -1)  # of coordinates in [padded]; −1 in the border
        self._group = np.full(d, -1)
        self._local = np.zeros(d, np.int64)  # slot within the group
        self.starts, self.block_starts = [0], [0]
        for number, group in enumerate(ordering.groups):
            self._group[group.coordinates] = number
            self._local[group.coordinates] = group.slots
            self.slots[group.coordinates] = self.starts[-1] + group.slots
            self.starts.append(self.starts[-1] + group.padded)
            self.block_starts.append(self.block_starts[-1] + block_numbers(group))
        self.inner = np.flatnonzero(self.slots >= 0)
        self.slots = self.slots[self.inner]
        self.is_border = self._group < 0

    @property
    def padded(self) -> int:
        """The number of slots."""
        return self.starts[-1]

    @property
    def zero(self) -> int:
        """The place of an entry that is zero."""
        return self.block_starts[-1]

    @cached_property
    def unused(self) -> np.ndarray:
        """The places on the diagonals that no coordinate has."""
        parts = [np.zeros(0, np.int64)]
        for group, start in zip(self.ordering.groups, self.block_starts, strict=False):
            free = np.setdiff1d(np.arange(group.padded), group.slots)
            parts.append(start + free * group.size + free % group.size)
        return np.concatenate(parts)

    def blocks(self, pattern: Pattern) -> np.ndarray:
        """Return the places of a pattern's entries; zero's in the border and between components.

        Raises:
            ValueError: if an entry couples distant blocks of one component.
        """
        return pattern.remember((self, "blocks"), lambda: self._blocks(pattern))

    def _blocks(self, pattern: Pattern) -> np.ndarray:
        places = np.full(pattern.size, self.zero)
        components = self.ordering.components
        in_component = components[pattern.rows] == components[pattern.columns]
        for number, group in enumerate(self.ordering.groups):
            chosen = np.flatnonzero(in_component & (self._group[pattern.rows] == number))
            rows, columns = self._local[pattern.rows[chosen]], self._local[pattern.columns[chosen]]
            places[chosen] = self.block_starts[number] + _within(group, rows, columns)
        return places


def block_numbers(group: Group) -> int:
    """Return how many numbers the blocks of a group have."""
    return (2 * group.length - 1) * group.lanes * group.size**2


def _within(group: Group, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the places of entries in the blocks of a group; the upper ones are the lower ones'."""
    in_step = group.lanes * group.size
    is_upper = rows // in_step < columns // in_step
    low, high = np.where(is_upper, columns, rows), np.where(is_upper, rows, columns)
    distance = low // in_step - high // in_step
    if (distance > 1).any():
        raise ValueError("an entry of the inverse is asked for that the precision does not couple")
    below = group.length * group.lanes * group.size**2
    block = high // group.size  # of the column: step and lane
    inside = low % group.size * group.size + high % group.size
    return distance * below + block * group.size**2 + inside
