"""What one datum of a model is, and where its weight goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Data:
    """The data of a model: the elements of the plates around what it observes.

    Args:
        shape: of their weights.
        broadcast: the shape in which the weights meet the log densities of an observed site.
    """

    shape: tuple[int, ...]
    broadcast: Mapping[str, tuple[int, ...]]

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
        plates = {name: _plates(site) for name, site in observed.items()}
        names = [datum] if datum is not None else _around_all(plates)
        inside = {name: found for name, found in plates.items() if {*names} <= found.keys()}
        if not names and len(observed) == 1:
            ((name, site),) = observed.items()
            shape = tuple(site["fn"].batch_shape)
            return cls(shape, {name: shape})
        if not names or not inside:
            listed = "; ".join(
                f"'{name}': {', '.join(map(repr, found)) or 'none'}"
                for name, found in plates.items()
            )
            raise ValueError(
                f"it is not clear what one datum is: no plate is around all that is observed, or "
                f"{datum!r} is none (plates by site: {listed}); name the one whose elements are "
                "the data, datum=..."
            )
        first = next(iter(inside.values()))
        ordered = sorted(names, key=lambda plate: first[plate][0])
        return cls(
            tuple(first[plate][1] for plate in ordered),
            {name: _shape([found[plate] for plate in ordered]) for name, found in inside.items()},
        )


def _plates(site: Any) -> dict[str, tuple[int, int]]:
    """Axis, counted from the right, and size of each plate around a site."""
    return {
        frame.name: (frame.dim, frame.size)
        for frame in site["cond_indep_stack"]
        if frame.dim is not None
    }


def _around_all(plates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    common = set.intersection(*({*found} for found in plates.values()))
    return sorted(common)


def _shape(axes: list[tuple[int, int]]) -> tuple[int, ...]:
    """Sizes on their axes, ones elsewhere, of plates from left to right."""
    shape = [1] * -min(axis for axis, _ in axes)
    for axis, size in axes:
        shape[axis] = size
    return tuple(shape)
