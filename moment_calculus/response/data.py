"""What one datum of a model is, and where its weight goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Plates = Mapping[str, tuple[int, int]]  # axis, counted from the right, and size, by name


@dataclass(frozen=True)
class Data:
    """The data of a model: the elements of the plates around what it observes.

    Args:
        shape: of their weights.
        plates: whose elements they are, from left to right; none if they are the elements of one
            observed site.
        site: that one; empty if there are plates.
        local: latent sites inside the plates, which belong to the data as well.
    """

    shape: tuple[int, ...]
    plates: tuple[str, ...]
    site: str = ""
    local: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, sites: Mapping[str, Any], is_factor: Callable[[Any], bool], datum: str | None
    ) -> Data:
        """The data of a model.

        Args:
            sites: of its trace, by name.
            is_factor: whether an observed site is none of the data.
            datum: a plate whose elements are the data; None for all plates that are around every
                observation, or where there are no plates, elements of the one observed site.

        Raises:
            ValueError: if that is not clear; the message names the sites and their plates.
        """
        observed = {
            name: site
            for name, site in sites.items()
            if site["is_observed"] and not is_factor(site)
        }
        if not observed:
            raise ValueError("the model observes nothing: there are no data to weigh")
        plates = {name: plates_of(site) for name, site in observed.items()}
        names = {datum} if datum is not None else set.intersection(*map(set, plates.values()))
        if not names and len(observed) == 1:
            ((name, site),) = observed.items()
            return cls(tuple(site["fn"].batch_shape), (), name)
        first = next((found for found in plates.values() if names <= found.keys()), None)
        if not names or first is None:
            raise _unclear(plates, datum)
        ordered = tuple(sorted(names, key=lambda plate: first[plate][0]))
        local = [
            name
            for name, site in sites.items()
            if not site["is_observed"] and names <= plates_of(site).keys()
        ]
        return cls(tuple(first[plate][1] for plate in ordered), ordered, local=tuple(local))

    def weight_shape(self, name: str, site: Any) -> tuple[int, ...] | None:
        """The shape in which the weights meet the log density of a site; None if it has none.

        Args:
            name: of the site.
            site: of a trace, or a message on its way.
        """
        if not self.plates:
            return self.shape if name == self.site else None
        found = plates_of(site)
        if not found.keys() >= {*self.plates}:
            return None
        return _shape([found[plate] for plate in self.plates])

    def check_guide(self, sites: Mapping[str, Any]) -> None:
        """Refuse a guide of which it is not known what it adds to each datum.

        Args:
            sites: of its trace, by name, and what they belong to in the model.

        Raises:
            ValueError: naming the site.
        """
        for name in self.local:
            if name not in sites or self.weight_shape(name, sites[name]) is None:
                listed = ", ".join(map(repr, self.plates))
                raise ValueError(
                    f"the latent site '{name}' belongs to the data, and the guide does not sample "
                    f"it inside the plate {listed}: what a datum adds to the loss is not known; "
                    "use DVIGuide or AutoNormal"
                )


def plates_of(site: Any) -> Plates:
    """Axis, counted from the right, and size of each vectorised plate around a site.

    Args:
        site: of a trace, or a message on its way.
    """
    return {
        frame.name: (frame.dim, frame.size)
        for frame in site["cond_indep_stack"]
        if frame.dim is not None
    }


def _unclear(plates: Mapping[str, Plates], datum: str | None) -> ValueError:
    listed = "; ".join(
        f"'{name}': {', '.join(map(repr, found)) or 'none'}" for name, found in plates.items()
    )
    asked = "no plate is around all that is observed" if datum is None else f"{datum!r} is none"
    return ValueError(
        f"it is not clear what one datum is: {asked} (vectorised plates by site: {listed}); put "
        "the data into a plate and name it, datum=...; sites of a loop have no weights"
    )


def _shape(axes: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Sizes on their axes, ones elsewhere, of plates from left to right."""
    shape = [1] * -min(axis for axis, _ in axes)
    for axis, size in axes:
        shape[axis] = size
    return tuple(shape)
