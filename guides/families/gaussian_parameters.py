"""Implement the parameters of the Gaussian family: from a flat vector to means and factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_guides.families.gaussian import LatentVector


class Part(NamedTuple):
    """Blocks of coordinates x = m + W u + y, given the shared ones of a Gaussian.

    u is the standard normal vector of the p shared coordinates, y_t = A_t y_{t−1} + L_t e_t with
    the standard normal e_t of the block; without A they are independent.
    """

    mean: np.ndarray  # m, [blocks, k]
    root: np.ndarray  # W beside L, which is lower triangular, [blocks, k, p + k]
    links: np.ndarray  # A of a chain, [blocks − 1, k, k], else [0, k, k]


class GaussianPoint(NamedTuple):
    """A Gaussian, and parameters that are no Gaussian's."""

    parts: tuple[Part, ...]  # the first is the block of the shared coordinates
    rest: np.ndarray  # [r]


class PartIndices(NamedTuple):
    """Where a flat vector of unconstrained parameters holds those of a part.

    [W, L] = diag(s) [V, U] with a unit lower triangular U; s is the softplus of its parameters,
    [V, U] has the elements left of the ones, row by row, A its own.
    """

    shared: int  # p
    locs: np.ndarray  # [blocks, k]
    scales: np.ndarray  # [blocks, k]
    factors: np.ndarray  # [blocks, k p + k (k − 1) / 2]
    links: np.ndarray  # [blocks − 1, k, k], or [0, k, k]

    @property
    def left(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and columns of the elements of [V, U] left of the ones."""
        width = self.locs.shape[1]
        return np.tril_indices(width, self.shared - 1, self.shared + width)

    @property
    def ones(self) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and columns of the ones of [V, U]."""
        rows = np.arange(self.locs.shape[1])
        return rows, self.shared + rows

    def point(self, vector: np.ndarray) -> Part:
        """Return the part of a vector [n]."""
        blocks, width = self.locs.shape
        scale = np.logaddexp(0, vector[self.scales])
        unit = np.zeros([blocks, width, self.shared + width])
        unit[:, *self.left], unit[:, *self.ones] = vector[self.factors], 1
        return Part(vector[self.locs], scale[..., None] * unit, vector[self.links])

    def write(self, part: Part, vector: np.ndarray) -> None:
        """Write the parameters of the part to a vector [n]."""
        rows, columns = self.left
        scale = part.root[:, *self.ones]
        vector[self.locs], vector[self.links] = part.mean, part.links
        vector[self.scales] = scale + np.log(-np.expm1(-scale))
        vector[self.factors] = part.root[:, rows, columns] / scale[:, rows]

    def slope(self, part: Part, slope: np.ndarray) -> Part:
        """Return a function's derivatives by the part from those by the vector [n]."""
        rows, columns = self.left
        scale = part.root[:, *self.ones]
        root = np.zeros_like(part.root)
        root[:, rows, columns] = slope[self.factors] / scale[:, rows]
        through_rows = (root * part.root).sum(2) / scale
        root[:, *self.ones] = slope[self.scales] / -np.expm1(-scale) - through_rows
        return Part(slope[self.locs], root, slope[self.links])

    def write_direction(self, part: Part, change: Part, direction: np.ndarray) -> None:
        """Write how the vector [n] changes with the part; the transpose of ``slope``."""
        rows, columns = self.left
        scale, by_scale = part.root[:, *self.ones], change.root[:, *self.ones]
        relative = part.root * (by_scale / scale)[..., None]
        direction[self.locs], direction[self.links] = change.mean, change.links
        direction[self.scales] = by_scale / -np.expm1(-scale)
        direction[self.factors] = (change.root - relative)[:, rows, columns] / scale[:, rows]


@dataclass(frozen=True)
class GaussianParameters:
    """Where a flat vector of unconstrained parameters holds those of a Gaussian, and all others."""

    parts: tuple[PartIndices, ...]
    rest: np.ndarray  # indices of all other parameters, [r]

    @classmethod
    def of_sites(
        cls,
        vector: LatentVector,
        sizes: Mapping[str, int],
        locs: Sequence[str],
        scales: Sequence[str],
        factor: str,
    ) -> GaussianParameters:
        """Return the layout of a Gaussian over all sites, from the sizes of all parameters.

        The names of locations and scales are in the order of the sites.
        """
        indices = _indices(sizes)
        loc, scale = (_joined(indices.pop(name) for name in names) for names in (locs, scales))
        own = indices.pop(factor)
        parts = [
            PartIndices(
                part.shared,
                loc[part.places],
                scale[part.places],
                own[part.factors],
                own[part.links],
            )
            for part in vector.parts
        ]
        return cls(tuple(parts), _joined(indices.values()))

    @classmethod
    def of_single_coordinates(
        cls, sizes: Mapping[str, int], locations: Mapping[str, str]
    ) -> GaussianParameters:
        """Return the layout of independent coordinates, from the location of each scale by name.

        It has none if the names are not clear, as of a site that is called "scales".
        """
        if len({*locations, *locations.values()}) < 2 * len(locations):
            locations = {}
        indices = _indices(sizes)
        scales = _joined(indices.pop(name) for name in locations)[:, None]
        locs = _joined(indices.pop(name) for name in locations.values())[:, None]
        none = np.zeros([1, 0], int)
        shared = PartIndices(0, none, none, none, np.zeros([0, 0, 0], int))
        factors, links = np.zeros([len(locs), 0], int), np.zeros([0, 1, 1], int)
        singles = PartIndices(0, locs, scales, factors, links)
        return cls((shared, singles), _joined(indices.values()))

    @property
    def size(self) -> int:
        """Return the number of all parameters."""
        arrays = [array for part in self.parts for array in part[1:]]
        return sum(array.size for array in arrays) + self.rest.size

    def point(self, vector: np.ndarray) -> GaussianPoint:
        """Return the Gaussian of a vector [n]."""
        return GaussianPoint(tuple(part.point(vector) for part in self.parts), vector[self.rest])

    def vector(self, point: GaussianPoint) -> np.ndarray:
        """Return the vector [n] of a Gaussian."""
        result = np.empty(self.size)
        result[self.rest] = point.rest
        for indices, part in zip(self.parts, point.parts, strict=True):
            indices.write(part, result)
        return result

    def slope(self, point: GaussianPoint, slope: np.ndarray) -> GaussianPoint:
        """Return a function's derivatives by means and roots from those by the vector [n]."""
        pairs = zip(self.parts, point.parts, strict=True)
        by_parts = tuple(indices.slope(part, slope) for indices, part in pairs)
        return GaussianPoint(by_parts, slope[self.rest])

    def direction(self, point: GaussianPoint, change: GaussianPoint) -> np.ndarray:
        """Return how the vector [n] changes with means and roots; the transpose of ``slope``."""
        result = np.empty(self.size)
        result[self.rest] = change.rest
        for indices, part, by in zip(self.parts, point.parts, change.parts, strict=True):
            indices.write_direction(part, by, result)
        return result


def _indices(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return where each parameter is in a vector of all, in their order."""
    ends = np.cumsum([0, *sizes.values()])
    return {name: np.arange(*ends[at : at + 2]) for at, name in enumerate(sizes)}


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, int), *parts])
