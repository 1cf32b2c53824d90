"""The data of a model: plates, what each datum contributes, and energies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from moment_calculus.errors import OR_DRAW_ONE_MASK, UnsupportedMoments, warn_user
from moment_calculus.numerics.arrays import Array, namespace, stop_gradient


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
    """Sum over all axes but ``dims`` (negative, ascending); missing ones get size 1."""
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
    """Finds the data plates: the plate ``datum``, or those around all observations."""

    def __init__(self, datum: str | None = None) -> None:
        self.datum = datum
        self._warned: set[frozenset[str]] = set()

    def __call__(self, observed: Mapping[str, Sequence[Plate]]) -> DataPlates:
        """Return the data plates of a program from those around observed sites."""
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


class ObservedPlates(NamedTuple):
    """The plates around an observed site, and the shape of its value."""

    plates: Sequence[Plate]
    shape: tuple[int, ...]

    def possible_rows(self) -> set[int]:
        """Return the numbers of rows that the data may have."""
        # Rows are elements of the plates around the site, or of some of them; of the
        # subsample or of the full size. Without a plate the axes of the site serve.
        axes = [{plate.size, plate.full_size} for plate in self.plates]
        axes = axes or [{size} for size in self.shape]
        chosen = set(product(*({None, *sizes} for sizes in axes))) - {(None,) * len(axes)}
        return {math.prod(n or 1 for n in sizes) for sizes in chosen} or {1}

    def description(self) -> str:
        """Describe the plates for a message."""
        names = (f"'{plate.name}' of {plate.size} elements" for plate in self.plates)
        return f"plate {', '.join(names)}" if self.plates else f"no plate, of shape {self.shape}"


def check_rows_are_data(weights: Mapping[str, Any], observed: Mapping[str, ObservedPlates]) -> None:
    """Raise for a mask of rows that are no data; each row has one mask."""
    counts: set[int] = set().union(*(site.possible_rows() for site in observed.values()))
    for name, weight in weights.items():
        if weight.mask.uses and counts and weight.mask.rows not in counts:
            raise _no_data(name, weight.mask.rows, observed.items())


def _no_data(
    name: str, rows: int, observed: Iterable[tuple[str, ObservedPlates]]
) -> UnsupportedMoments:
    around = "; ".join(f"'{site}' in {data.description()}" for site, data in observed)
    return UnsupportedMoments(
        f"the masked site '{name}' of MCDropoutGuide maps {rows} row(s) of inputs, which are not "
        f"the data ({around}): a mask is drawn for each datum, and rows of one datum share it",
        sites=[name],
        remedy="give the site one row of inputs for each datum, put what is observed in plates "
        "whose elements are the rows, leave the site unmasked: name the sites to mask in "
        "MCDropoutGuide(p={...})" + OR_DRAW_ONE_MASK,
    )


_NEAR = 1.0  # below this exponent expm1 and log1p keep full precision, also for α → 0


def log_mean_power(values: Array, alpha: float, axis: int = 0) -> Array:
    """Return (1/α) log of the mean of exp(α x) over an axis; for α = 0 the mean of x."""
    xp = namespace(values)
    if alpha == 0:
        return xp.mean(values, axis=axis)
    centre = stop_gradient(_centre(values, axis))  # the two parts of its gradient would cancel
    deviation = alpha * (values - centre)
    # Under jax.jit the operands are computed again for the gradient. The maximum may then
    # equal none of them, and its gradient would reach none.
    largest = stop_gradient(xp.max(deviation, axis=axis, keepdims=True))
    near = largest < _NEAR
    small = xp.log1p(xp.mean(xp.expm1(xp.where(near, deviation, 0.0)), axis=axis, keepdims=True))
    large = largest + xp.log(xp.mean(xp.exp(deviation - largest), axis=axis, keepdims=True))
    return xp.squeeze(centre + xp.where(near, small, large) / alpha, axis)


def bb_alpha_energy(data: Array, latent: Array, scale: Array, alpha: float) -> Array:
    """Return the black-box α energy of particles; for α = 0 the negative ELBO."""
    xp = namespace(data)
    # Log-densities of the data [particles, ...], contributions of the latent sites
    # [particles], and the number of data that each datum stands for.
    return -xp.sum(log_mean_power(data, alpha)) * scale[0] - xp.mean(latent)


def _centre(values: Array, axis: int) -> Array:
    """Return the mean; the maximum where the mean is infinite, as of densities that vanish."""
    xp = namespace(values)
    mean, most = (part(values, axis=axis, keepdims=True) for part in (xp.mean, xp.max))
    finite = xp.where(xp.isfinite(most), most, 0.0)
    return xp.where(xp.isfinite(mean), mean, finite)
