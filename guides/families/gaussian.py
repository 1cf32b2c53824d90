"""Implement the Gaussian family with covariances between all sites: its layout and refusals.

Up to 500 coordinates it is one Gaussian. Of more it keeps the covariances that the posterior of
a model with plates has: elements of a plate are independent given what they share (an arrow).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.numerics.arrays import Array, device, namespace

MOST_OF_A_COVARIANCE = 5000  # most coordinates of which it is written down
MAX_DENSE = 500  # most coordinates of one block, whose factor has the square of that


class Plate(NamedTuple):
    """Coordinates that are independent between the elements of a plate, given the shared ones."""

    name: str
    places: np.ndarray  # in the vector of all, [elements, k]
    axes: Mapping[str, int]  # of its sites' unconstrained values, in the order of the columns


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
    def factor_size(self) -> int:
        """Return the number of elements of the factor left of the ones on its diagonal."""
        return sum(part.factors.size for part in self.parts)

    def sites(self, parts: Sequence[Any], moved: Callable[[Any, int, int], Any]) -> dict[str, Any]:
        """Return the value of each site from those of the parts, [..., p] and [..., blocks, k].

        ``moved`` moves an axis.
        """
        shapes, result = dict(zip(self.names, self.shapes, strict=True)), dict[str, Any]()
        for plate, value in zip(self.plates, parts[1:], strict=True):
            start, batch = 0, tuple(value.shape[:-2])
            for name, axis in plate.axes.items():
                size, rest = shapes[name][axis], [*shapes[name]]
                rest.pop(axis)
                stop = start + math.prod(rest)
                free = value[..., start:stop].reshape((*batch, size, *rest))
                last = axis - len(shapes[name])
                result[name] = moved(free, len(batch), last) if axis else free
                start = stop
        return {**self.shared_sites(parts[0]), **result}

    def shared_sites(self, part: Any) -> dict[str, Any]:
        """Return the value of each site outside of the plates from the shared coordinates."""
        local = frozenset(name for plate in self.plates for name in plate.axes)
        result, start = dict[str, Any](), 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            if name not in local:
                stop = start + math.prod(shape)
                result[name] = part[..., start:stop].reshape((*part.shape[:-1], *shape))
                start = stop
        return result

    def joint(self, means: Sequence[Array], roots: Sequence[Array]) -> tuple[Array, Array]:
        """Return the mean [d] and the covariance [d, d] of all coordinates."""
        if self.size > MOST_OF_A_COVARIANCE:
            raise UnsupportedMoments(
                f"the covariance of all {self.size} coordinates would be a matrix of "
                f"{self.size} x {self.size}; {MOST_OF_A_COVARIANCE} are the most",
                sites=self.names,
                remedy="use sample_posterior, median and quantiles",
            )
        xp = namespace(means[0])
        order = np.argsort(np.concatenate([part.places.ravel() for part in self.parts]))
        mean = xp.concat([xp.reshape(part, (-1,)) for part in means])
        wide, start = [], 0
        for root in roots:
            side = root.shape[-1] - root.shape[-2]
            own = _block_diagonal(root[..., side:])
            by_shared = xp.reshape(root[..., :side], (len(own), side))
            columns = [by_shared, _zeros(own, start - side), own]
            start += len(own)
            wide.append(xp.concat([*columns, _zeros(own, self.size - start)], axis=-1))
        root = taken(xp.concat(wide), order)
        return taken(mean, order), root @ root.mT

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


def taken(array: Array, places: np.ndarray) -> Array:
    """Return elements [*places] of the first axis of an array."""
    xp = namespace(array)
    where = xp.asarray(places.ravel(), device=device(array))
    return xp.reshape(xp.take(array, where, axis=0), (*places.shape, *array.shape[1:]))


def _zeros(like: Array, columns: int) -> Array:
    xp = namespace(like)
    return xp.zeros((len(like), columns), dtype=like.dtype, device=device(like))


def _block_diagonal(blocks: Array) -> Array:
    """Return the matrix [n k, n k] with blocks [n, k, k] on its diagonal."""
    xp, (count, width, _) = namespace(blocks), blocks.shape
    which = xp.eye(count, dtype=blocks.dtype, device=device(blocks))
    wide = which[:, None, :, None] * blocks[:, :, None, :]
    return xp.reshape(wide, (count * width, count * width))


def roots_of(vector: LatentVector, scale: Array, factor: Array) -> list[Array]:
    """Return W beside L of each part, [blocks, k, p + k], from s [d] and the elements of [V, U]."""
    return [taken(scale, part.places)[..., None] * _unit(part, factor) for part in vector.parts]


def _unit(part: PartOfVector, factor: Array) -> Array:
    """Return [V, U], [blocks, k, p + k]."""
    xp, (blocks, width) = namespace(factor), part.places.shape
    left, count = (
        np.tril_indices(width, part.shared - 1, part.shared + width),
        part.factors.shape[1],
    )
    places = np.full([width, part.shared + width], count)  # of a zero
    places[left] = np.arange(count)
    places[np.arange(width), part.shared + np.arange(width)] = count + 1  # of a one
    own = xp.reshape(factor[part.start : part.start + part.factors.size], (blocks, count))
    ends = [xp.full((blocks, 1), end, dtype=own.dtype, device=device(own)) for end in (0.0, 1.0)]
    padded = xp.concat([own, *ends], axis=-1)
    where = xp.asarray(places.ravel(), device=device(factor))
    return xp.reshape(xp.take(padded, where, axis=-1), (blocks, *places.shape))
