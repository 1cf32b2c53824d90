"""Implement the Gaussian family with covariances between all sites: its layout and refusals.

Up to 500 coordinates it is one Gaussian. Of more it keeps the covariances that the posterior of
a model with plates has: elements of a plate are independent given what they share (an arrow).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments

MAX_DENSE = 500  # most coordinates of one block, whose factor has the square of that


class Plate(NamedTuple):
    """Coordinates that are independent between the elements of a plate, given the shared ones."""

    name: str
    places: np.ndarray  # in the vector of all, [elements, k]


class PartOfVector(NamedTuple):
    """Where the coordinates of some blocks are, and the elements of their factor."""

    shared: int  # coordinates that the blocks share
    places: np.ndarray  # in the vector of all, [blocks, k]
    factors: np.ndarray  # in the factor, one after another, [blocks, k shared + k (k − 1) / 2]
    start: int  # of these


@dataclass(frozen=True, eq=False)
class LatentVector:
    """The unconstrained values of all sites, one after another in one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the unconstrained values
    plates: tuple[Plate, ...] = ()  # of elements that are independent given all others

    @property
    def slices(self) -> dict[str, slice]:
        """Return where each site is in the vector."""
        result, start = dict[str, slice](), 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            result[name] = slice(start, start := start + math.prod(shape))
        return result

    @property
    def size(self) -> int:
        """Return the number of coordinates."""
        return sum(map(math.prod, self.shapes))

    @cached_property
    def shared(self) -> np.ndarray:
        """Return where the coordinates are that no plate has."""
        is_shared = np.ones(self.size, bool)
        for plate in self.plates:
            is_shared[plate.places] = False
        return np.flatnonzero(is_shared)

    @cached_property
    def parts(self) -> tuple[PartOfVector, ...]:
        """Return the block of the shared coordinates, and the blocks of each plate."""
        shared = len(self.shared)
        parts, start = [], 0
        blocks = [(self.shared[None], 0), *((plate.places, shared) for plate in self.plates)]
        for places, of_shared in blocks:
            count, width = places.shape
            each = width * of_shared + width * (width - 1) // 2
            factors = start + np.arange(count * each).reshape(count, each)
            parts.append(PartOfVector(of_shared, places, factors, start))
            start += count * each
        return tuple(parts)

    @property
    def blocks(self) -> np.ndarray:
        """Return the number of each coordinate's block, of the shared ones −1, [d]."""
        numbers, start = np.full(self.size, -1), 0
        for plate in self.plates:
            numbers[plate.places] = start + np.arange(len(plate.places))[:, None]
            start += len(plate.places)
        return numbers

    @property
    def factor_size(self) -> int:
        """Return the number of elements of the factor left of the ones on its diagonal."""
        return sum(part.factors.size for part in self.parts)

    def check(self, refusal: str = "") -> None:
        """Raise UnsupportedMoments for more shared coordinates than one Gaussian may have.

        ``refusal`` says why elements of plates are not independent given the shared ones.
        """
        if len(self.shared) <= MAX_DENSE:
            return
        largest = max(zip(map(math.prod, self.shapes), self.names, strict=True))
        raise UnsupportedMoments(
            f"a Gaussian over all sites would have {self.size} coordinates, most of them of site "
            f"'{largest[1]}', and a covariance of {self.size} x {self.size}; {MAX_DENSE} are the "
            f"most, but for elements of plates that are independent given all other sites{refusal}",
            sites=self.names,
            remedy="use DVIGuide, whose components are independent, and linear_response",
        )


def check_whole_plates(sites: Sequence[tuple[str, Sequence[tuple[str, int, int]]]]) -> None:
    """Raise UnsupportedMoments for latent sites inside a plate that draws a subsample.

    Of every site it takes the name, and name, full size and size of each plate.
    """
    for name, plates in sites:
        for plate, full_size, size in plates:
            if full_size != size:
                raise UnsupportedMoments(
                    f"site '{name}' is in plate '{plate}', which draws {size} of its {full_size} "
                    "elements: a Gaussian over all sites needs all of them",
                    sites=[name],
                    remedy="leave out the plate's subsample_size, or use DVIGuide",
                )
