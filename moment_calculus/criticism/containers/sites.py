"""Names and coordinates of the axes of a model's sites, for ArviZ."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESERVED = ("chain", "draw")


@dataclass(frozen=True)
class SiteAxes:
    """A site of a model, with the plate of each of its axes."""

    name: str
    kind: str  # "latent", "deterministic" or "observed"
    shape: tuple[int, ...]
    plates: Mapping[str, tuple[int, int]]  # negative axis and size of each vectorised plate
    event: int = 0  # number of trailing axes that belong to one event

    def dimensions(self, user_dims: Sequence[str] | None, site_names: Iterable[str]) -> list[str]:
        """Return names of the axes: the user's if given, otherwise those of the plates."""
        if user_dims is not None:
            return named_axes(f"site '{self.name}'", user_dims, self.shape)
        rank = len(self.shape)
        names = [f"{self.name}_dim_{axis}" for axis in range(rank)]
        for plate, (axis, size) in self.plates.items():
            if rank + axis >= 0 and self.shape[axis] == size:
                names[axis] = dimension_of(plate, site_names)
        return names


def named_axes(what: str, user_dims: Sequence[str], shape: tuple[int, ...]) -> list[str]:
    """Return the user's names of an array's axes; raise ValueError if their number is wrong."""
    if len(user_dims) != len(shape):
        raise ValueError(
            f"dims names {len(user_dims)} axes of {what} ({', '.join(user_dims)}), which has "
            f"{len(shape)}: its shape is {shape}"
        )
    return list(user_dims)


def dimension_of(plate: str, site_names: Iterable[str]) -> str:
    """Return the name of a plate's axis: the plate's own unless a site or ArviZ uses it."""
    return f"{plate}_plate" if plate in {*site_names, *RESERVED} else plate


@dataclass(frozen=True)
class Dimensions:
    """Names of the axes of all sites, and coordinates along these axes."""

    sites: Mapping[str, SiteAxes]
    arguments: Collection[str]  # names of the arrays that the model is called with
    user_dims: Mapping[str, Sequence[str]]  # the user's names of axes by site or argument
    coords: Mapping[str, Any]  # the user's coordinates by name of an axis

    def __post_init__(self) -> None:
        if clash := {name for dims in self.user_dims.values() for name in dims} & {*RESERVED}:
            raise ValueError(f"dims must not have the names {sorted(clash)}: ArviZ's own axes")

    @property
    def _site_names(self) -> set[str]:
        return {*self.sites, *self.arguments}

    def of(self, name: str, event: bool = True) -> list[str]:
        """Return names of the axes of a site, with or without those of its events."""
        site = self.sites[name]
        names = site.dimensions(self.user_dims.get(name), self._site_names)
        return names if event or not site.event else names[: -site.event]

    def check_known(self) -> None:
        """Raise ValueError if the user names axes of a site or argument that does not exist."""
        names = [*self.sites, *self.arguments]
        if unknown := [name for name in self.user_dims if name not in names]:
            raise ValueError(
                f"dims names {', '.join(map(repr, unknown))}; there are "
                f"{', '.join(map(repr, names))}"
            )

    def coordinates(self, names: Iterable[str]) -> dict[str, Any]:
        """Return coordinates of these axes: the user's, otherwise the indices of a plate."""
        sizes = {
            dimension_of(plate, self._site_names): size
            for site in self.sites.values()
            for plate, (_, size) in site.plates.items()
        }
        numbered = {name: np.arange(size) for name, size in sizes.items()}
        return {
            name: values
            for name in names
            if (values := self.coords.get(name, numbered.get(name))) is not None
        }

    def matching_coordinates(self, coords: Mapping[str, Any]) -> dict[str, Any]:
        """Return those coordinates whose length fits their axis."""
        lengths = {
            axis: size
            for name, site in self.sites.items()
            for axis, size in zip(self.of(name), site.shape, strict=True)
        }
        # Coordinates of the training data do not fit predictions of other rows.
        return {name: part for name, part in coords.items() if len(part) == lengths.get(name)}

    @property
    def data_plate(self) -> tuple[str, int] | None:
        """Return name and size of the only plate that all observed sites share, or None."""
        observed = [site.plates for site in self.sites.values() if site.kind == "observed"]
        common = set.intersection(*map(set, observed)) if observed else set()
        if len(common) != 1:
            return None
        (plate,) = common
        return dimension_of(plate, self._site_names), observed[0][plate][1]
