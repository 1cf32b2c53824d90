"""Implement the Gaussian family with covariances between all sites: its layout and refusals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from moment_calculus.errors import UnsupportedMoments

MAX_DENSE = 500  # most coordinates of one Gaussian, whose factor has the square of that


@dataclass(frozen=True)
class LatentVector:
    """The unconstrained values of all sites, one after another in one vector."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the unconstrained values

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

    @property
    def below(self) -> int:
        """Return the number of elements below the diagonal of the factor."""
        return self.size * (self.size - 1) // 2

    def check(self) -> None:
        """Raise UnsupportedMoments for more coordinates than one Gaussian may have."""
        if self.size <= MAX_DENSE:
            return
        largest = max(zip(map(math.prod, self.shapes), self.names, strict=True))
        raise UnsupportedMoments(
            f"a Gaussian over all sites would have {self.size} coordinates, most of them of site "
            f"'{largest[1]}', and a covariance of {self.size} x {self.size}; {MAX_DENSE} are the "
            "most",
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


class GaussianPoint(NamedTuple):
    """A Gaussian of independent blocks, and parameters that are no Gaussian's."""

    mean: np.ndarray  # [blocks, k]
    root: np.ndarray  # lower triangular L, covariance L Lᵀ, [blocks, k, k]
    rest: np.ndarray  # [r]


@dataclass(frozen=True)
class GaussianParameters:
    """Where a flat vector of unconstrained parameters holds locations, scales and factors.

    A block has L = diag(s) U with a unit lower triangular U; s is the softplus of its
    parameters, U has the elements below the diagonal, row by row.
    """

    locs: np.ndarray  # indices, [blocks, k]
    scales: np.ndarray  # indices, [blocks, k]
    factors: np.ndarray  # indices, [blocks, k (k − 1) / 2]
    rest: np.ndarray  # indices of all other parameters, [r]

    @classmethod
    def of_one_block(
        cls, sizes: Mapping[str, int], locs: Sequence[str], scales: Sequence[str], factor: str
    ) -> GaussianParameters:
        """Return the layout of one Gaussian, from the sizes of all parameters in their order.

        The names of locations and scales are in the order of the coordinates.
        """
        indices = _indices(sizes)
        block = [_joined(indices.pop(name) for name in names) for names in (locs, scales)]
        below = indices.pop(factor)
        return cls(block[0][None], block[1][None], below[None], _joined(indices.values()))

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
        scales = _joined(indices.pop(name) for name in locations)
        locs = _joined(indices.pop(name) for name in locations.values())
        factors = np.zeros([scales.size, 0], int)
        return cls(locs[:, None], scales[:, None], factors, _joined(indices.values()))

    @property
    def size(self) -> int:
        """Return the number of all parameters."""
        return self.locs.size + self.scales.size + self.factors.size + self.rest.size

    @property
    def _below(self) -> tuple[np.ndarray, np.ndarray]:
        return np.tril_indices(self.locs.shape[1], -1)

    def point(self, vector: np.ndarray) -> GaussianPoint:
        """Return the Gaussian of a vector [n]."""
        scale = np.logaddexp(0, vector[self.scales])
        unit = np.zeros([*self.locs.shape, self.locs.shape[1]])
        rows, columns = self._below
        unit[:, rows, columns] = vector[self.factors]
        diagonal = np.arange(self.locs.shape[1])
        unit[:, diagonal, diagonal] = 1
        return GaussianPoint(vector[self.locs], scale[..., None] * unit, vector[self.rest])

    def vector(self, point: GaussianPoint) -> np.ndarray:
        """Return the vector [n] of a Gaussian."""
        scale = np.diagonal(point.root, axis1=1, axis2=2)
        rows, columns = self._below
        result = np.empty(self.size)
        result[self.locs], result[self.rest] = point.mean, point.rest
        result[self.scales] = scale + np.log(-np.expm1(-scale))
        result[self.factors] = point.root[:, rows, columns] / scale[:, rows]
        return result

    def slope(self, point: GaussianPoint, slope: np.ndarray) -> GaussianPoint:
        """Return a function's derivatives by mean and L from those by the vector [n]."""
        scale = np.diagonal(point.root, axis1=1, axis2=2)
        rows, columns = self._below
        root = np.zeros_like(point.root)
        root[:, rows, columns] = slope[self.factors] / scale[:, rows]
        through_rows = (root * point.root).sum(2) / scale
        diagonal = np.arange(scale.shape[1])
        root[:, diagonal, diagonal] = slope[self.scales] / -np.expm1(-scale) - through_rows
        return GaussianPoint(slope[self.locs], root, slope[self.rest])

    def direction(self, point: GaussianPoint, change: GaussianPoint) -> np.ndarray:
        """Return how the vector [n] changes with mean and L; the transpose of ``slope``."""
        scale = np.diagonal(point.root, axis1=1, axis2=2)
        by_scale = np.diagonal(change.root, axis1=1, axis2=2)
        rows, columns = self._below
        relative = point.root * (by_scale / scale)[..., None]
        result = np.empty(self.size)
        result[self.locs], result[self.rest] = change.mean, change.rest
        result[self.scales] = by_scale / -np.expm1(-scale)
        result[self.factors] = (change.root - relative)[:, rows, columns] / scale[:, rows]
        return result


def _indices(sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return where each parameter is in a vector of all, in their order."""
    ends = np.cumsum([0, *sizes.values()])
    return {name: np.arange(*ends[at : at + 2]) for at, name in enumerate(sizes)}


def _joined(parts: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0, int), *parts])
