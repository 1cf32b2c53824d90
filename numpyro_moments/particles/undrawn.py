"""Normal values that are not drawn yet: sites, and the rows of a map by a random weight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
from jax.extend import core

from guides.families import mc_dropout, mean_field
from moment_calculus.numerics.arrays import standard_deviation
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.dropout.masked import Mask, meets_other_operation
from moment_calculus.operations.elementwise.arithmetic import leaf
from moment_calculus.values import Gaussian

normal_site_p = core.Primitive("normal_site")
normal_site_p.def_abstract_eval(lambda _, loc, scale, **__: loc)
masked_site_p = core.Primitive("masked_site")  # its posterior is an operand, leaf by leaf
masked_site_p.def_abstract_eval(lambda _, loc, *__, **___: loc)


class Together(Exception):
    """Sites that have to be drawn once for all rows: the program is evaluated anew.

    Args:
        sites: their names.
    """

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__(sorted(sites))
        self.sites = frozenset(sites)


@dataclass(frozen=True)
class Rows:
    """Drawn values of which each row has noise of its own.

    Args:
        array: the values.
        axis: of the rows.
        sites: the weights whose noise is in them.
    """

    array: jax.Array
    axis: int
    sites: frozenset[str]


@dataclass(eq=False)
class Site:
    """A latent site with a Normal posterior, drawn at most once.

    Args:
        name: the site.
        key: random key.
        loc: locations.
        scale: standard deviations, of the same shape.
        is_mean: whether its mean stands for a draw.
        apart: whether rows have had noise of their own; then nothing else may use the site.
    """

    name: str
    key: jax.Array
    loc: jax.Array
    scale: jax.Array
    is_mean: bool = False
    apart: bool = False
    _drawn: jax.Array | None = None
    _moments: Gaussian | None = None

    @property
    def can_be_apart(self) -> bool:
        """Whether rows can have noise of their own."""
        return True

    def moments(self) -> Gaussian:
        """The moments of its posterior, for log-densities that are known in closed form."""
        if self._moments is None:
            moments = mean_field.moments(self.loc, self.scale)
            rank = self.loc.ndim
            self._moments = leaf(self.name, *moments, Propagation("diagonal"), event_dim=rank)
        return self._moments

    def draw(self) -> jax.Array:
        """The draw, the same for all who ask.

        Raises:
            Together: if rows have had noise of their own.
        """
        if self.is_mean:
            return self.loc
        if self.apart:
            raise Together([self.name])
        if self._drawn is None:
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> jax.Array:
        noise = jax.random.normal(self.key, self.loc.shape, self.loc.dtype)
        return mean_field.sample(self.loc, self.scale, noise)

    def take_apart(self) -> None:
        """Give each row noise of its own, which one operation may do.

        Raises:
            Together: if the site is used elsewhere.
        """
        if self.apart or self._drawn is not None:
            raise Together([self.name])
        self.apart = True


@dataclass(eq=False)
class MaskedSite(Site):
    """A weight with masks, one for each row of its inputs: rows may be mixed afterwards.

    Args:
        masks: its posterior, which draws them.
        shared: whether a mask of each weight may stand for those of all rows, as long as none mix.
    """

    masks: Any = None
    shared: bool = True
    mask: Mask = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Nothing is drawn yet."""
        per_weight = self.masks.design.noise == "dropconnect"
        self.mask = Mask(self.name, None, per_weight=per_weight)
        self.shared = self.shared and per_weight

    @property
    def can_be_apart(self) -> bool:
        """Its noise is that of rows already."""
        return False

    def moments(self) -> Any:
        """Its mean: what it contributes is known without its value."""
        return self.loc

    def noise(self, rows: int) -> jax.Array:
        """Noise [rows, ...] that broadcasts with the weight, the same in all of its maps.

        Raises:
            UnsupportedMoments: if another map has another number of rows.
        """
        self.mask.spend_rows(rows)
        design = self.masks.design
        own = mc_dropout.mask_shape(self.loc.shape, design.axis, design.noise)
        return self.masks.noise(self.key, (1 if self.shared else rows, *own))

    def draw(self) -> jax.Array:
        """Its mean, if that stands for draws.

        Raises:
            UnsupportedMoments: else; which elements share a mask is known in maps alone.
        """
        if self.is_mean:
            return self.loc
        raise meets_other_operation(self.name)


@dataclass(frozen=True, eq=False)
class Undrawn:
    """A site that is not drawn yet, its elements possibly moved.

    Args:
        site: the site.
        moves: what moves its elements, the first to apply first.
        repeated: the axes along which every element is repeated.
    """

    site: Site
    moves: tuple[Callable[[jax.Array], jax.Array], ...] = ()
    repeated: frozenset[int] = frozenset()

    @property
    def loc(self) -> jax.Array:
        """Locations where they are now."""
        return self.with_moves(self.site.loc)

    @property
    def scale(self) -> jax.Array:
        """Standard deviations where they are now."""
        return self.with_moves(self.site.scale)

    def draw(self) -> jax.Array:
        """The draw of the site, where its elements are now."""
        return self.with_moves(self.site.draw())

    def repeated_to(self, shape: tuple[int, ...]) -> frozenset[int]:
        """The axes along which elements are repeated when it meets an array.

        Args:
            shape: of the array, of as many axes.
        """
        sizes = enumerate(zip(self.loc.shape, shape, strict=True))
        return self.repeated | {axis for axis, (own, size) in sizes if own == 1 < size}

    def moved(self, equation: Any) -> Undrawn | None:
        """The same after a primitive that moves or repeats elements; None if that is not followed.

        Args:
            equation: of a jaxpr, with one operand.
        """
        if (repeated := _repeated(equation, self.repeated)) is None:
            return None
        move = partial(equation.primitive.bind, **equation.params)
        return Undrawn(self.site, (*self.moves, move), repeated)

    def with_moves(self, array: jax.Array) -> jax.Array:
        """What has the shape of the site, with its elements where they are now.

        Args:
            array: of that shape.
        """
        for move in self.moves:
            array = move(array)
        return array


def _repeated(equation: Any, before: frozenset[int]) -> frozenset[int] | None:
    """The axes along which elements are repeated after a primitive."""
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
    """Rows of a map by a random weight, with noise of their own; drawn at most once.

    Args:
        mean: of the outputs.
        variance: of the outputs.
        axis: of the rows; None for a single one.
        parts: the sites whose noise it is.
        before: the sites whose noise is in the inputs.
    """

    mean: jax.Array
    variance: jax.Array
    axis: int | None
    parts: Sequence[Site]
    before: frozenset[str] = field(default_factory=frozenset)
    _drawn: jax.Array | None = None

    @property
    def sites(self) -> frozenset[str]:
        """Names of all sites whose noise is in the rows."""
        return self.before | {part.name for part in self.parts}

    def plus(self, bias: Undrawn) -> UndrawnRows:
        """The sum with a bias that has not been used, whose noise is the rows' own, too.

        Args:
            bias: of the shape of the outputs.
        """
        bias.site.take_apart()
        variance = self.variance + mean_field.moments(bias.loc, bias.scale)[1]
        parts = (*self.parts, bias.site)
        return UndrawnRows(self.mean + bias.loc, variance, self.axis, parts, self.before)

    def draw(self) -> Rows | jax.Array:
        """The draw, the same for all who ask."""
        if self._drawn is None:
            noise = jax.random.normal(self.parts[0].key, self.mean.shape, self.mean.dtype)
            self._drawn = mean_field.sample(self.mean, standard_deviation(self.variance), noise)
        return self._drawn if self.axis is None else Rows(self._drawn, self.axis, self.sites)
