"""The latent sites on the unconstrained space, and which parameters are theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.response.functional import Functional, Selected
from moment_calculus.response.solvers.arrow import Partition

LONG = 100  # elements of an axis without a plate that may be independent of each other


@dataclass(frozen=True)
class Latent:
    """A latent site as its guide has it: a function of Gaussian coordinates.

    Args:
        name: of the site.
        loc: mean of the coordinates, of the site's unconstrained shape.
        scale: their standard deviation in the guide, of the same shape.
        to_support: the function that makes values of the site, of arrays of the host with further
            axes in front; monotone where it is elementwise.
        log_slope: log of the absolute derivative of that function, elementwise, or of its
            Jacobian's determinant.
        plates: around the site, the axis of each.
        is_elementwise: whether that function is; otherwise it mixes coordinates, as of a simplex.
    """

    name: str
    loc: np.ndarray
    scale: np.ndarray
    to_support: Callable[[Any], Any]
    log_slope: Callable[[Any], Any]
    plates: Mapping[str, int]
    is_elementwise: bool = True

    @property
    def axes(self) -> dict[str | int, int]:
        """Its axes by their plate, or where there is none, long ones by their size."""
        free = set(range(self.loc.ndim)) - {*self.plates.values()}
        sizes = {self.loc.shape[axis]: axis for axis in free if self.loc.shape[axis] >= LONG}
        return {**self.plates, **sizes}


@dataclass(frozen=True)
class Leaf:
    """One array of parameters.

    Args:
        name: the host's.
        size: number of its elements.
        location: name of the leaf whose scale it is, with an element for each; None for others.
    """

    name: str
    size: int
    location: str | None = None


class Layout:
    """Which site, and which element of each plate, a parameter is of.

    Args:
        latents: the sites, in the order of their coordinates.
        leaves: the parameters, in order.
        locations: the coordinates' means as functions of the parameters.
    """

    def __init__(
        self, latents: Sequence[Latent], leaves: Sequence[Leaf], locations: Functional
    ) -> None:
        self.latents = {latent.name: latent for latent in latents}
        ends = np.cumsum([0, *(latent.loc.size for latent in latents)])
        self.slices = {latent.name: slice(*ends[at : at + 2]) for at, latent in enumerate(latents)}
        self.leaves = list(leaves)
        self.coordinates = self._coordinates(locations)

    def _coordinates(self, locations: Functional) -> np.ndarray:
        """Of every parameter, the coordinate whose location or scale it is; -1 for others."""
        starts = np.cumsum([0, *(leaf.size for leaf in self.leaves)])
        found = np.full(starts[-1], -1)
        if isinstance(locations, Selected):
            found[locations.places] = np.arange(len(locations.places))
        slices = {leaf.name: slice(*starts[at : at + 2]) for at, leaf in enumerate(self.leaves)}
        for leaf in self.leaves:
            if leaf.location is not None:
                found[slices[leaf.name]] = found[slices[leaf.location]]
        return found

    def shares(self, amounts: np.ndarray) -> list[tuple[str, float]]:
        """What share each site has in something that parameters have, the largest first.

        Args:
            amounts: of each parameter, at least zero, [n].
        """
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
        """Those by a plate of local latents, the one with the fewest products first.

        Axes of sites without a plate are tried as well: there are models that are written so.
        """
        axes = dict.fromkeys(axis for latent in self.latents.values() for axis in latent.axes)
        found = [Partition.by(self._elements(axis)) for axis in axes]
        return sorted((part for part in found if part), key=lambda part: part.products)

    def _elements(self, axis: str | int) -> np.ndarray:
        """Which element along an axis each parameter is of; -1 for none."""
        parts = [
            np.broadcast_to(_index_along(latent, axis), latent.loc.shape).ravel()
            for latent in self.latents.values()
        ]
        of_coordinates = np.concatenate([*parts, [-1]])  # the last for those of no coordinate
        return of_coordinates[self.coordinates]


def _index_along(latent: Latent, axis: str | int) -> np.ndarray:
    if axis not in latent.axes:
        return np.array(-1)
    place = latent.axes[axis]
    shape = [1] * latent.loc.ndim
    shape[place] = latent.loc.shape[place]
    return np.arange(shape[place]).reshape(shape)
