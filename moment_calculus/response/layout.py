"""Which site, coordinate and element of a plate every parameter belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from moment_calculus.response.arrow import Partition
from moment_calculus.response.problem import Functional, Latent, ParameterArray


@dataclass(frozen=True)
class Selection:
    """A functional whose elements are parameters themselves."""

    value: np.ndarray  # [d]
    indices: np.ndarray  # indices of the elements among the parameters, [d]
    size: int  # number of all parameters

    def vjp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, d] times G, [k, parameters]."""
        result = np.zeros([len(rows), self.size])
        result[:, self.indices] = rows
        return result

    def jvp(self, rows: np.ndarray) -> np.ndarray:
        """Return rows [k, parameters] times the transpose of G, [k, d]."""
        return rows[:, self.indices]


def as_selection(functional: Functional, size: int) -> Functional:
    """Return a functional as a selection if its elements are parameters, otherwise as it is."""
    count = len(functional.value)
    # If G selects parameters, the numbers 1 to d appear at the places of the parameters.
    (numbered,) = functional.vjp(np.arange(1.0, count + 1)[None])
    (indices,) = np.nonzero(numbered)
    order = np.rint(numbered[indices]).astype(int) - 1
    if not np.array_equal(np.sort(order), np.arange(count)):
        return functional
    selection = Selection(functional.value, indices[np.argsort(order)], size)
    # G could select more than that: compare with a random direction.
    probe = np.random.default_rng(0).normal(size=[1, size])
    expected = functional.jvp(probe)
    return (
        selection if np.allclose(expected, selection.jvp(probe), rtol=1e-6, atol=0) else functional
    )


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
