"""Implement the Gaussian family with covariances between all sites: its layout and refusals.

Up to 500 coordinates it is one Gaussian. Of more it keeps the covariances that the posterior of
a model with plates has: given what they share elements of a plate are independent (an arrow), or
each leans on the one before (a chain).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations.shapes.plates import Places

MAX_DENSE = 500  # most coordinates of one block, whose factor has the square of that


class Plate(NamedTuple):
    """Blocks of coordinates that are independent, or a chain, given the shared ones."""

    name: str
    places: np.ndarray  # in the vector of all, [blocks, k]
    is_chain: bool = False  # whether each block leans on the one before


class PartOfVector(NamedTuple):
    """Where the coordinates of some blocks are, and the elements of their factor."""

    shared: int  # coordinates that the blocks share
    places: np.ndarray  # in the vector of all, [blocks, k]
    factors: np.ndarray  # in the factor, one after another, [blocks, k shared + k (k − 1) / 2]
    links: np.ndarray  # and of the transitions of a chain, [blocks − 1, k, k], else [0, k, k]


@dataclass(frozen=True, eq=False)
class LatentVector:
    """The unconstrained values of all sites, one after another in one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the unconstrained values
    plates: tuple[Plate, ...] = ()  # of elements that are independent, or a chain, given all others

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Return where each site is in the vector."""
        result, start = dict[str, slice](), 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            result[name] = slice(start, start := start + math.prod(shape))
        return result

    def split(self, values: Any) -> dict[str, Any]:
        """Return the unconstrained value of each site of vectors [..., d]."""
        batch, pieces = tuple(values.shape[:-1]), zip(self.slices.items(), self.shapes, strict=True)
        return {name: values[..., part].reshape(batch + shape) for (name, part), shape in pieces}

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
        whole = Plate("", self.shared[None])
        for (_, places, is_chain), of_shared in [(whole, 0), *((p, shared) for p in self.plates)]:
            count, width = places.shape
            each = width * of_shared + width * (width - 1) // 2
            factors = start + np.arange(count * each).reshape(count, each)
            steps = [count - 1 if is_chain else 0, width, width]
            links = start + factors.size + np.arange(math.prod(steps)).reshape(steps)
            parts.append(PartOfVector(of_shared, places, factors, links))
            start += factors.size + links.size
        return tuple(parts)

    @cached_property
    def order(self) -> np.ndarray:
        """Return where each coordinate is if those of the parts stand one after another."""
        return np.argsort(np.concatenate([part.places.ravel() for part in self.parts]))

    @cached_property
    def blocks(self) -> Places:
        """Return where the coordinates are in the blocks of all plates, and an empty one."""
        width = max(plate.places.shape[1] for plate in self.plates)
        empty: np.ndarray = np.full([1, width], self.size)
        tables, chains = [empty], [np.zeros(1, int)]
        for plate in self.plates:
            count, own = plate.places.shape
            tables.append(
                np.pad(plate.places, [(0, 0), (0, width - own)], constant_values=self.size)
            )
            start = 1 + chains[-1][-1]
            chains.append(start + (0 * np.arange(count) if plate.is_chain else np.arange(count)))
        coordinates = np.concatenate(tables)
        places = np.zeros(self.size + 1, int)  # shared ones are at a place of the empty block
        places[coordinates.ravel()] = np.arange(coordinates.size)
        places[self.shared] = 0
        return Places(coordinates, places[:-1], np.concatenate(chains))

    @property
    def factor_size(self) -> int:
        """Return the number of elements left of the ones on its diagonal, and of transitions."""
        return sum(part.factors.size + part.links.size for part in self.parts)

    def check(self, refusal: str = "") -> None:
        """Raise UnsupportedMoments for more shared coordinates than one Gaussian may have.

        ``refusal`` says why elements of plates are neither independent nor a chain.
        """
        if len(self.shared) <= MAX_DENSE:
            return
        largest = max(zip(map(math.prod, self.shapes), self.names, strict=True))
        raise UnsupportedMoments(
            f"a Gaussian over all sites would have {self.size} coordinates, most of them of site "
            f"'{largest[1]}', and a covariance of {self.size} x {self.size}; {MAX_DENSE} are the "
            "most, but for elements of plates that are independent, or a chain, given all other "
            f"sites{refusal}",
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
