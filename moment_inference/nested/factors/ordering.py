"""Which coordinates of a sparse precision become a border, which a band: decided by the pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from moment_inference.nested.sparse import Pattern

# Seconds on one core of a factorisation and entries of the inverse, for the choice only.
POINTS = 41  # grid points that the choice is made for
FLOP, STEP, LAPACK, OVERHEAD = 2e-10, 1e-4, 3e-5, 2e-3
CHAIN = 0.01  # of a step that one coordinate of a chain takes by LAPACK
BLOCK_SIZES = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512])
WHOLE = 1.5  # most coordinates of a component that is one block, as a multiple of its band


@dataclass(frozen=True)
class Group:
    """Components without the border whose bands are about as wide, in lanes of blocks.

    Attributes:
        size: of a block, s.
        length: blocks in a lane, N.
        lanes: how many, l.
        coordinates: of the components, [m].
        slots: where they are in [N, l, s], flattened, [m].
    """

    size: int
    length: int
    lanes: int
    coordinates: np.ndarray
    slots: np.ndarray

    @property
    def padded(self) -> int:
        """The number of slots."""
        return self.length * self.lanes * self.size

    def seconds(self, border: int) -> float:
        """Return about what a factorisation takes beside a border of so many columns."""
        s, blocks = float(self.size), self.lanes * self.length
        flops = blocks * (6 * s**3 + 4 * s**2 * (border + 4)) + self.padded * float(border) ** 2
        by_lapack = POINTS * self.lanes
        most = CHAIN * by_lapack if s == 1 else 1 + LAPACK / STEP * by_lapack
        step = STEP * min(1 if s == 1 else 1 + s, most)
        return POINTS * flops * FLOP + self.length * step


@dataclass(frozen=True)
class Ordering:
    """A border, which couples to everything, and groups of components apart from it.

    Attributes:
        border: its coordinates, [p].
        groups: of the other coordinates.
        components: of each coordinate, −1 in the border, [d].
    """

    border: np.ndarray
    groups: tuple[Group, ...]
    components: np.ndarray

    def seconds(self) -> float:
        """Return about what a factorisation takes."""
        p = len(self.border)
        groups = sum(group.seconds(p) for group in self.groups)
        return OVERHEAD + POINTS * float(p) ** 3 * FLOP + groups


def best_ordering(pattern: Pattern) -> Ordering | None:
    """Return the cheapest ordering; None if a dense factorisation is cheaper."""
    d = pattern.shape[0]
    best = min(bordered_orderings(pattern), key=Ordering.seconds, default=None)
    dense = POINTS * (FLOP * float(d) ** 3 + LAPACK * (1 + d / 10))
    return best if best is not None and best.seconds() < dense else None


def bordered_orderings(pattern: Pattern) -> Iterator[Ordering]:
    """Return an ordering for each border that a limit of entries in a column makes."""
    return (_ordering(pattern, border) for border in _borders(pattern))


def _borders(pattern: Pattern) -> Iterator[np.ndarray]:
    """Return masks of columns with more than some numbers of entries, [d] each."""
    counts = np.bincount(pattern.columns, minlength=pattern.shape[0])
    limits = 2.0 ** np.arange(1, np.log2(counts.max(initial=2)) + 1)
    numbers = {int((counts > limit).sum()): limit for limit in [*limits, np.inf]}
    return (counts > limit for number, limit in numbers.items() if number < len(counts))


def _ordering(pattern: Pattern, is_border: np.ndarray) -> Ordering:
    """Return the ordering with a border that is given by a mask."""
    inner = np.flatnonzero(~is_border)
    graph = _graph(pattern, inner)
    components = np.full(len(is_border), -1)
    _, labels = connected_components(graph, directed=False)
    components[inner] = labels
    by_band = np.empty(len(inner), np.int64)
    by_band[reverse_cuthill_mckee(graph, symmetric_mode=True)] = np.arange(len(inner))
    order = np.lexsort((by_band, labels))
    sizes = np.bincount(labels)
    ranks = np.empty(len(inner), np.int64)  # within the component
    ranks[order] = np.arange(len(inner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    block_sizes = _block_sizes(graph, labels, ranks, sizes)
    border = np.flatnonzero(is_border)
    groups = [
        _group(size, inner[is_in], labels[is_in], ranks[is_in])
        for size in np.unique(block_sizes)
        for is_in in [block_sizes[labels] == size]
    ]
    return Ordering(border, tuple(groups), components)


def _graph(pattern: Pattern, inner: np.ndarray) -> csr_array:
    """Return which of some coordinates are coupled."""
    parts = (np.ones(pattern.size, np.int8), pattern.columns, pattern.starts)
    graph = csr_array(parts, shape=pattern.shape)[inner][:, inner]
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)
    return graph


def _block_sizes(
    graph: csr_array, labels: np.ndarray, ranks: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """Return the size of each component's blocks: its band's width or, if that is less, all."""
    entries = graph.tocoo()
    widths = np.ones(len(sizes), np.int64)
    np.maximum.at(widths, labels[entries.row], np.abs(ranks[entries.row] - ranks[entries.col]))
    widths = np.where((sizes > 2) & (sizes <= WHOLE * widths), sizes, widths)
    known = np.searchsorted(BLOCK_SIZES, widths)
    return np.where(known < len(BLOCK_SIZES), BLOCK_SIZES[known % len(BLOCK_SIZES)], widths)


def _group(size: int, coordinates: np.ndarray, labels: np.ndarray, ranks: np.ndarray) -> Group:
    """Return components in lanes; those of one length share lanes as many as fit."""
    present, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    lengths = -(-counts // size)
    longest = int(lengths.max())
    lane, first = np.empty(len(present), np.int64), np.empty(len(present), np.int64)
    lanes = 0
    for length in np.unique(lengths):
        members, in_lane = np.flatnonzero(lengths == length), longest // length
        numbers = np.arange(len(members))
        lane[members] = lanes + numbers // in_lane
        first[members] = numbers % in_lane * length
        lanes += -(-len(members) // in_lane)
    block = first[which] + ranks // size
    slots = (block * lanes + lane[which]) * size + ranks % size
    return Group(int(size), longest, lanes, coordinates, slots)
