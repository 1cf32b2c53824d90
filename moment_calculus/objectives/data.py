"""The data of a model: the plates in which they lie, and what each datum contributes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import warn_user
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace


@dataclass(frozen=True)
class Plate:
    """A plate around a site."""

    name: str
    dim: int  # its batch axis, negative
    size: int  # number of its elements, or of those in its subsample
    full_size: int  # number of all its elements

    @property
    def scale(self) -> float:
        """Return how many elements of the full size each element stands for."""
        return self.full_size / self.size


@dataclass(frozen=True)
class DataPlates:
    """The plates whose elements are the data; none where all observations are one datum."""

    plates: tuple[Plate, ...]  # in the order of their axes

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the plates."""
        return frozenset(plate.name for plate in self.plates)

    @property
    def scale(self) -> float:
        """Return how many data of the full size each datum stands for."""
        return math.prod((plate.scale for plate in self.plates), start=1.0)

    @property
    def dims(self) -> tuple[int, ...]:
        """Return the (negative) batch axes of the plates."""
        return tuple(plate.dim for plate in self.plates)

    def other_plate_names(self, around: Sequence[Plate]) -> tuple[str, ...]:
        """Return the names of those plates around a site whose elements are no data."""
        return tuple(plate.name for plate in around if plate.name not in self.names)

    def relative_scale(self, scale: Any) -> Any:
        """Return a site's scale over that of the data: the user's, and that of inner plates."""
        return (1.0 if scale is None else scale) / self.scale

    def per_datum(self, terms: Array, scale: Any) -> Array:
        """Return scale · terms, a site's log-density, for each datum, [data plates]."""
        return sum_except(terms * self.relative_scale(scale), self.dims)

    def share_per_datum(self, terms: Array, scale: Any, around: Sequence[Plate]) -> Array:
        """Return each datum's share of the log-density of a site, [data plates].

        A site inside all data plates belongs to its datum. Any other is divided among all
        the data of the full sizes that share it; its axes of plates that are not around
        it have size one.
        """
        names = {plate.name for plate in around}
        own_plates = DataPlates(tuple(plate for plate in self.plates if plate.name in names))
        sharing = math.prod(plate.full_size for plate in self.plates if plate.name not in names)
        per_datum = own_plates.per_datum(terms, scale) / sharing
        sizes = iter(per_datum.shape)
        shape = tuple(next(sizes) if plate.name in names else 1 for plate in self.plates)
        return namespace(per_datum).reshape(per_datum, shape)


def sum_except(terms: Array, dims: Sequence[int]) -> Array:
    """Sum over all axes but ``dims`` (negative, ascending); those that are missing get size one."""
    xp, rank = namespace(terms), len(terms.shape)
    wide = max([rank, *(-dim for dim in dims)])
    terms = xp.reshape(terms, (1,) * (wide - rank) + tuple(terms.shape))
    others = tuple(axis for axis in range(wide) if axis - wide not in dims)
    return xp.sum(terms, axis=others) if others else terms


def common_plates(sites: Mapping[str, Sequence[Plate]]) -> DataPlates:
    """Return the plates around all sites, in the order of their axes."""
    by_name = [{plate.name: plate for plate in plates} for plates in sites.values()]
    first = by_name[0] if by_name else {}
    common = (plate for name, plate in first.items() if all(name in part for part in by_name))
    return DataPlates(tuple(sorted(common, key=lambda plate: plate.dim)))


class DataPlateFinder:
    """Finds the data plates: the user's plate ``datum``, or those around all observed sites."""

    def __init__(self, datum: str | None = None) -> None:
        self.datum = datum
        self._warned: set[frozenset[str]] = set()

    def __call__(self, observed: Mapping[str, Sequence[Plate]]) -> DataPlates:
        """Return the data plates of one program from the plates around each observed site."""
        if not observed:
            raise ValueError("the model observes nothing: there are no data")
        common = common_plates(observed)
        if self.datum is not None:
            _check(self.datum, common.names, observed)
            return DataPlates(tuple(plate for plate in common.plates if plate.name == self.datum))
        if not common.plates and (sites := frozenset(observed)) not in self._warned:
            self._warned.add(sites)
            _warn(observed)
        return common


def check_subsamples(sites: Mapping[str, Sequence[Plate]], common: DataPlates) -> None:
    """Raise ValueError for a subsample in a plate that is not around all sites."""
    for name, plates in sites.items():
        for plate in plates:
            if plate.scale != 1 and plate.name not in common.names:
                raise ValueError(
                    f"RenyiELBO: plate '{plate.name}' around site '{name}' is subsampled, but not "
                    "around every site, and the ratio of densities of global sites is one power; "
                    "use BBAlphaELBO, whose power is that of each datum, or all the data"
                )


def _check(datum: str, names: frozenset[str], observed: Mapping[str, Sequence[Plate]]) -> None:
    if datum not in names:
        sites = ", ".join(sorted(observed))
        known = ", ".join(sorted(names)) or "none is"
        raise ValueError(
            f"datum={datum!r} is no plate around every observed site ({sites}): {known}"
        )


def _warn(observed: Mapping[str, Sequence[Plate]]) -> None:
    bare = sorted(name for name, plates in observed.items() if not plates)
    reason = f"{', '.join(bare)} in no plate" if bare else "no plate is around all of them"
    warn_user(
        f"all observations are one datum, whose joint density is taken to the power alpha: "
        f"observed sites {reason}; put them in one plate for the data",
        UserWarning,
    )
