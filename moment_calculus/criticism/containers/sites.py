"""The sites of a model and the names of their axes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESERVED = ("chain", "draw")


@dataclass(frozen=True)
class SiteAxes:
    """A site of a model, and the plates that its axes are of.

    Args:
        name: of the site.
        kind: ``"latent"``, ``"deterministic"`` or ``"observed"``.
        shape: of its value.
        plates: axis of the value, negative, and size by the name of each vectorised plate.
        event: how many trailing axes are of one event.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    plates: Mapping[str, tuple[int, int]]
    event: int = 0

    def dimensions(self, given: Sequence[str] | None, taken: Iterable[str]) -> list[str]:
        """Names of the axes.

        Args:
            given: the user's; None for the plates'.
            taken: names that are a site's, which no axis may have.

        Raises:
            ValueError: if there are not as many as axes.
        """
        if given is not None:
            return named_axes(f"site '{self.name}'", given, self.shape)
        rank = len(self.shape)
        found = [f"{self.name}_dim_{axis}" for axis in range(rank)]
        for plate, (axis, size) in self.plates.items():
            if rank + axis >= 0 and self.shape[axis] == size:
                found[axis] = dimension_of(plate, taken)
        return found


def named_axes(what: str, given: Sequence[str], shape: tuple[int, ...]) -> list[str]:
    """The user's names of the axes of an array.

    Args:
        what: it is.
        given: the names.
        shape: of it.

    Raises:
        ValueError: if there are not as many as axes.
    """
    if len(given) != len(shape):
        raise ValueError(
            f"dims names {len(given)} axes of {what} ({', '.join(given)}), which has "
            f"{len(shape)}: its shape is {shape}"
        )
    return list(given)


def dimension_of(plate: str, taken: Iterable[str]) -> str:
    """The name of a plate's dimension: the plate's, unless something else has it.

    Args:
        plate: its name.
        taken: names that are a site's.
    """
    return f"{plate}_plate" if plate in {*taken, *RESERVED} else plate


@dataclass(frozen=True)
class Dimensions:
    """Names of the axes of all sites, and coordinates along them.

    Args:
        sites: of the model.
        arguments: names of the arrays that the model is called with.
        given: the user's names of axes by site or argument.
        coords: the user's coordinates by name of an axis.

    Raises:
        ValueError: if the user gives an axis a name that ArviZ has for another.
    """

    sites: Mapping[str, SiteAxes]
    arguments: Collection[str]
    given: Mapping[str, Sequence[str]]
    coords: Mapping[str, Any]

    def __post_init__(self) -> None:
        if clash := {name for dims in self.given.values() for name in dims} & {*RESERVED}:
            raise ValueError(f"dims must not have the names {sorted(clash)}: ArviZ's own axes")

    @property
    def _taken(self) -> set[str]:
        return {*self.sites, *self.arguments}

    def of(self, name: str, event: bool = True) -> list[str]:
        """Names of the axes of a site.

        Args:
            name: of the site.
            event: whether those of its events are among them.
        """
        site = self.sites[name]
        found = site.dimensions(self.given.get(name), self._taken)
        return found if event or not site.event else found[: -site.event]

    def check_known(self) -> None:
        """Refuse names of what there is not.

        Raises:
            ValueError: with what there is.
        """
        known = [*self.sites, *self.arguments]
        if unknown := [name for name in self.given if name not in known]:
            raise ValueError(
                f"dims names {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(map(repr, known))}"
            )

    def coordinates(self, names: Iterable[str]) -> dict[str, Any]:
        """Coordinates along axes: the user's, and numbers along those of plates.

        Args:
            names: of the axes.
        """
        sizes = {
            dimension_of(plate, self._taken): size
            for site in self.sites.values()
            for plate, (_, size) in site.plates.items()
        }
        numbered = {name: np.arange(size) for name, size in sizes.items()}
        return {
            name: found
            for name in names
            if (found := self.coords.get(name, numbered.get(name))) is not None
        }

    def fitting(self, coords: Mapping[str, Any]) -> dict[str, Any]:
        """Those of some coordinates that have the length of their axis, as of other data.

        Args:
            coords: by name of an axis.
        """
        lengths = {
            axis: size
            for name, site in self.sites.items()
            for axis, size in zip(self.of(name), site.shape, strict=True)
        }
        return {name: part for name, part in coords.items() if len(part) == lengths.get(name)}

    @property
    def data_plate(self) -> tuple[str, int] | None:
        """Name and size of the one axis that all observations share; None if there is not one."""
        observed = [site.plates for site in self.sites.values() if site.kind == "observed"]
        common = set.intersection(*map(set, observed)) if observed else set()
        if len(common) != 1:
            return None
        (plate,) = common
        return dimension_of(plate, self._taken), observed[0][plate][1]
