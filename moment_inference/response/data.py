"""The data of a model: the elements of the plates around its observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_inference.host import Plates, plate_axes


@dataclass(frozen=True)
class Data:
    """The data of a model: the elements of the plates around its observations."""

    shape: tuple[int, ...]  # shape of the weights of the data
    plates: tuple[str, ...]  # from left to right; empty if one observed site holds the data
    site: str = ""  # that site; empty if there are plates
    local_latents: tuple[str, ...] = ()  # latent sites inside the plates, which belong to the data

    @classmethod
    def from_sites(
        cls, sites: Mapping[str, Any], is_factor: Callable[[Any], bool], datum: str | None
    ) -> Data:
        """Return the data of a model from its sites; raise ValueError if they are not clear.

        They are the elements of the plate ``datum``; without it, those of all plates
        around every observation, or without plates those of the one observed site.
        Factors are no data.
        """
        observed = {
            name: site
            for name, site in sites.items()
            if site["is_observed"] and not is_factor(site)
        }
        if not observed:
            raise ValueError("the model observes nothing: there are no data to weigh")
        plates = {name: plate_axes(site) for name, site in observed.items()}
        names = {datum} if datum is not None else set.intersection(*map(set, plates.values()))
        if not names and len(observed) == 1:
            ((name, site),) = observed.items()
            return cls(tuple(site["fn"].batch_shape), (), name)
        first = next((axes for axes in plates.values() if names <= axes.keys()), None)
        if not names or first is None:
            raise _unclear(plates, datum)
        ordered = tuple(sorted(names, key=lambda plate: first[plate][0]))
        local_latents = [
            name
            for name, site in sites.items()
            if not site["is_observed"] and names <= plate_axes(site).keys()
        ]
        return cls(
            tuple(first[plate][1] for plate in ordered), ordered, local_latents=tuple(local_latents)
        )

    def weight_shape(self, name: str, site: Any) -> tuple[int, ...] | None:
        """Return the shape of the weights of a site's log density; None for none."""
        if not self.plates:
            return self.shape if name == self.site else None
        plates = plate_axes(site)
        if not plates.keys() >= {*self.plates}:
            return None
        return _shape([plates[plate] for plate in self.plates])

    def check_guide(self, sites: Mapping[str, Any]) -> None:
        """Raise ValueError unless the guide samples local sites inside the plates."""
        for name in self.local_latents:
            if name not in sites or self.weight_shape(name, sites[name]) is None:
                listed = ", ".join(map(repr, self.plates))
                raise ValueError(
                    f"the latent site '{name}' belongs to the data, and the guide does not sample "
                    f"it inside the plate {listed}: what a datum adds to the loss is not known; "
                    "use DVIGuide or AutoNormal"
                )


def _unclear(plates: Mapping[str, Plates], datum: str | None) -> ValueError:
    listed = "; ".join(
        f"'{name}': {', '.join(map(repr, axes)) or 'none'}" for name, axes in plates.items()
    )
    problem = "no plate is around all that is observed" if datum is None else f"{datum!r} is none"
    return ValueError(
        f"it is not clear what one datum is: {problem} (vectorised plates by site: {listed}); put "
        "the data into a plate and name it, datum=...; sites of a loop have no weights"
    )


def _shape(axes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the shape with the sizes of plates on their axes and ones elsewhere."""
    shape = [1] * -min(axis for axis, _ in axes)
    for axis, size in axes:
        shape[axis] = size
    return tuple(shape)


def count_masked(fn: Any, mask: Any = None) -> int:
    """Return how many elements of an observation a mask hides, at any depth."""
    shown, masks = np.ones(fn.batch_shape + fn.event_shape, bool), [(mask, fn.event_dim)]
    while hasattr(fn, "base_dist") and not hasattr(fn, "transforms"):
        masks.append((getattr(fn, "_mask", None), fn.event_dim))
        fn = fn.base_dist
    for part, event_dim in masks:
        if part is not None:
            batch = np.asarray(part.cpu() if hasattr(part, "cpu") else part)
            shown = shown & batch.reshape(batch.shape + (1,) * event_dim)
    return int(np.sum(~shown))
