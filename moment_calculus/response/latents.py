"""The latent sites on the unconstrained space, and which parameters belong to each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.response.functional import Functional, Selection
from moment_calculus.response.solvers.arrow import Partition

LONG_AXIS = 100  # shortest axis without a plate whose elements may be independent of each other


@dataclass(frozen=True)
class Latent:
    """A latent site that its guide makes a function of Gaussian coordinates."""

    name: str
    loc: np.ndarray  # mean of the coordinates, of the site's unconstrained shape
    scale: np.ndarray  # their standard deviation in the guide, of the same shape
    # Makes values of the site from coordinates, arrays of the framework with further
    # leading axes.
    to_support: Callable[[Any], Any]
    log_slope: Callable[[Any], Any]  # log |derivative| or log |Jacobian determinant|
    plates: Mapping[str, int]  # axis of each plate around the site
    is_elementwise: bool = True  # False if to_support mixes coordinates, as for a simplex

    @property
    def axes(self) -> dict[str | int, int]:
        """Return the axis of each plate, and of each long axis without a plate by its size."""
        free = set(range(self.loc.ndim)) - {*self.plates.values()}
        sizes = {self.loc.shape[axis]: axis for axis in free if self.loc.shape[axis] >= LONG_AXIS}
        return {**self.plates, **sizes}


@dataclass(frozen=True)
class ParameterArray:
    """One array of parameters."""

    name: str  # in the framework
    size: int  # number of elements
    location: str | None = None  # the leaf, of the same size, whose scale this one is


class ParameterLayout:
    """The site, the coordinate and the element of each plate that every parameter belongs to."""

    def __init__(
        self, latents: Sequence[Latent], leaves: Sequence[ParameterArray], locations: Functional
    ) -> None:
        self.latents = {latent.name: latent for latent in latents}
        ends = np.cumsum([0, *(latent.loc.size for latent in latents)])
        self.slices = {latent.name: slice(*ends[at : at + 2]) for at, latent in enumerate(latents)}
        self.leaves = list(leaves)
        self.coordinates = self._coordinates(locations)

    def _coordinates(self, locations: Functional) -> np.ndarray:
        """Return for each parameter the coordinate whose location or scale it is, or -1."""
        starts = np.cumsum([0, *(leaf.size for leaf in self.leaves)])
        coordinates = np.full(starts[-1], -1)
        if isinstance(locations, Selection):
            coordinates[locations.indices] = np.arange(len(locations.indices))
        slices = {leaf.name: slice(*starts[at : at + 2]) for at, leaf in enumerate(self.leaves)}
        for leaf in self.leaves:
            if leaf.location is not None:
                coordinates[slices[leaf.name]] = coordinates[slices[leaf.location]]
        return coordinates

    def share_by_site(self, amounts: np.ndarray) -> list[tuple[str, float]]:
        """Return each site's share of non-negative amounts [n] of the parameters, largest first."""
        start, by_site = 0, dict.fromkeys(self.latents, 0.0)
        inside = self.coordinates >= 0
        for name, part in self.slices.items():
            mine = (self.coordinates >= part.start) & (self.coordinates < part.stop)
            by_site[name] += float(amounts[mine].sum())
        for leaf in self.leaves:
            here = slice(start, start + leaf.size)
            start += leaf.size
            if rest := float(amounts[here][~inside[here]].sum()):
                by_site[leaf.name] = rest
        total = sum(by_site.values()) or 1.0
        ordered = sorted(by_site.items(), key=lambda item: -item[1])
        return [(name, amount / total) for name, amount in ordered if amount > 0]

    def partitions(self) -> list[Partition]:
        """Return the partitions by a plate of local latents, the one with fewest products first."""
        # Axes of sites without a plate are tried as well: some models are written without
        # plates.
        axes = dict.fromkeys(axis for latent in self.latents.values() for axis in latent.axes)
        candidates = [Partition.by(self._elements(axis)) for axis in axes]
        return sorted((part for part in candidates if part), key=lambda part: part.products)

    def _elements(self, axis: str | int) -> np.ndarray:
        """Return which element along an axis each parameter belongs to; -1 for none."""
        parts = [
            np.broadcast_to(_index_along(latent, axis), latent.loc.shape).ravel()
            for latent in self.latents.values()
        ]
        of_coordinates = np.concatenate([*parts, [-1]])  # the last is for index -1, no coordinate
        return of_coordinates[self.coordinates]


def _index_along(latent: Latent, axis: str | int) -> np.ndarray:
    if axis not in latent.axes:
        return np.array(-1)
    position = latent.axes[axis]
    shape = [1] * latent.loc.ndim
    shape[position] = latent.loc.shape[position]
    return np.arange(shape[position]).reshape(shape)
