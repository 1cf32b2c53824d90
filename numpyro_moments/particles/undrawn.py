"""Normal values that are not drawn yet: sites, and the rows of a map by a random weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax

from guides.families import mc_dropout, mean_field
from moment_calculus.numerics.arrays import standard_deviation
from moment_calculus.operations.dropout.masked_weight import SiteMask, unsupported_operation_error
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation
from numpyro_moments._host import new_primitive

normal_site_p = new_primitive("normal_site", lambda _, loc, scale, **__: loc)
# The leaves of its posterior are operands.
masked_site_p = new_primitive("masked_site", lambda _, loc, *__, **___: loc)


class SharedDrawNeeded(Exception):
    """Raised if sites have to be drawn once for all rows: the program is evaluated anew."""

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__(sorted(sites))
        self.sites = frozenset(sites)


@dataclass(frozen=True)
class Rows:
    """Draws in which each row has noise of its own."""

    array: jax.Array
    axis: int  # of the rows
    sites: frozenset[str]  # names of the weights whose noise is in the draws


@dataclass(eq=False)
class Site:
    """A latent site with a Normal posterior, drawn at most once."""

    name: str
    key: jax.Array
    loc: jax.Array
    scale: jax.Array
    is_mean: bool = False  # whether the mean replaces the draw
    has_row_noise: bool = (
        False  # whether rows have had noise of their own; then nothing else may use it
    )
    _drawn: jax.Array | None = None
    _moments: Gaussian | None = None

    @property
    def may_use_row_noise(self) -> bool:
        """Return whether rows can have noise of their own."""
        return True

    def moments(self) -> Gaussian:
        """Return the moments of the posterior, for log-densities that have a closed form."""
        if self._moments is None:
            moments = mean_field.moments(self.loc, self.scale)
            rank = self.loc.ndim
            self._moments = site_value(self.name, *moments, Propagation("diagonal"), event_dim=rank)
        return self._moments

    def draw(self) -> jax.Array:
        """Return the one draw of the site; raise SharedDrawNeeded if rows have own noise."""
        if self.is_mean:
            return self.loc
        if self.has_row_noise:
            raise SharedDrawNeeded([self.name])
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> jax.Array:
        noise = jax.random.normal(self.key, self.loc.shape, self.loc.dtype)
        return mean_field.sample(self.loc, self.scale, noise)

    def use_row_noise(self) -> None:
        """Let one operation give each row its noise; raise SharedDrawNeeded for another one."""
        if self.has_row_noise or self._drawn is not None:
            raise SharedDrawNeeded([self.name])
        self.has_row_noise = True


@dataclass(eq=False)
class MaskedSite(Site):
    """A weight with one mask for each row of its inputs; rows may be mixed afterwards."""

    masks: Any = None  # the posterior, which draws the masks
    shared: bool = True  # whether all rows share a mask of each weight, which is right if none mix
    mask: SiteMask = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Make the record of uses; only masks of single weights can be shared by rows."""
        per_weight = self.masks.design.noise == "dropconnect"
        self.mask = SiteMask(self.name, None, per_weight=per_weight)
        self.shared = self.shared and per_weight

    @property
    def may_use_row_noise(self) -> bool:
        """Return False: its masks differ between rows already."""
        return False

    def moments(self) -> Any:
        """Return the mean: the site's terms do not need its value."""
        return self.loc

    def noise(self, rows: int) -> jax.Array:
        """Return noise [rows, ...] that broadcasts with the weight, the same in all of its maps."""
        self.mask.count_rows(rows)  # raises if another map has another number of rows
        design = self.masks.design
        own = mc_dropout.mask_shape(self.loc.shape, design.axis, design.noise)
        return self.masks.noise(self.key, (1 if self.shared else rows, *own))

    def draw(self) -> jax.Array:
        """Return the mean if means replace draws; raise UnsupportedMoments else."""
        if self.is_mean:
            return self.loc
        raise unsupported_operation_error(self.name)  # only maps know which elements share a mask


@dataclass(frozen=True, eq=False)
class Undrawn:
    """A site that is not drawn yet; its elements may have been moved."""

    site: Site
    # Functions that move elements, in the order of application.
    moves: tuple[Callable[[jax.Array], jax.Array], ...] = ()
    repeated: frozenset[int] = frozenset()  # axes along which every element is repeated

    @property
    def loc(self) -> jax.Array:
        """Return the locations, with their elements moved."""
        return self.with_moves(self.site.loc)

    @property
    def scale(self) -> jax.Array:
        """Return the standard deviations, with their elements moved."""
        return self.with_moves(self.site.scale)

    def draw(self) -> jax.Array:
        """Return the draw of the site, with its elements moved."""
        return self.with_moves(self.site.draw())

    def repeated_to(self, shape: tuple[int, ...]) -> frozenset[int]:
        """Return the axes along which elements repeat in an array of a shape of equal rank."""
        sizes = enumerate(zip(self.loc.shape, shape, strict=True))
        return self.repeated | {axis for axis, (own, size) in sizes if own == 1 < size}

    def moved(self, equation: Any) -> Undrawn | None:
        """Return the site after a primitive that moves or repeats elements; None for others."""
        if (repeated := _repeated(equation, self.repeated)) is None:
            return None
        move = partial(equation.primitive.bind, **equation.params)
        return Undrawn(self.site, (*self.moves, move), repeated)

    def with_moves(self, array: jax.Array) -> jax.Array:
        """Apply the moves to an array that has the shape of the site."""
        for move in self.moves:
            array = move(array)
        return array


def _repeated(equation: Any, before: frozenset[int]) -> frozenset[int] | None:
    """Return the axes along which elements repeat after a primitive; None if it is not known."""
    name, of = equation.primitive.name, equation.params
    if name == "broadcast_in_dim":
        places, old = of["broadcast_dimensions"], equation.invars[0].aval.shape
        kept = {place: axis for axis, place in enumerate(places)}
        return frozenset(
            place
            for place, size in enumerate(of["shape"])
            if size > 1 and (place not in kept or kept[place] in before or old[kept[place]] == 1)
        )
    if not before or name == "copy":
        return before
    if name == "transpose":
        return frozenset(of["permutation"].index(axis) for axis in before)
    return None


@dataclass(eq=False)
class UndrawnRows:
    """Rows of a map by a random weight, with noise of their own; drawn at most once."""

    mean: jax.Array
    variance: jax.Array
    axis: int | None  # of the rows; None for a single one
    parts: Sequence[Site]  # whose noise it is
    before: frozenset[str] = field(default_factory=frozenset)  # names of sites in the inputs
    _drawn: jax.Array | None = None

    @property
    def sites(self) -> frozenset[str]:
        """Return the names of all sites whose noise is in the rows."""
        return self.before | {part.name for part in self.parts}

    def plus(self, bias: Undrawn) -> UndrawnRows:
        """Return the sum with an unused bias, whose noise becomes the rows' own, too."""
        bias.site.use_row_noise()
        variance = self.variance + mean_field.moments(bias.loc, bias.scale)[1]
        parts = (*self.parts, bias.site)
        return UndrawnRows(self.mean + bias.loc, variance, self.axis, parts, self.before)

    def draw(self) -> Rows | jax.Array:
        """Return the one draw of the rows."""
        if self._drawn is None:
            noise = jax.random.normal(self.parts[0].key, self.mean.shape, self.mean.dtype)
            self._drawn = mean_field.sample(self.mean, standard_deviation(self.variance), noise)
        return self._drawn if self.axis is None else Rows(self._drawn, self.axis, self.sites)
