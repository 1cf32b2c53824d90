"""Normal values that are not drawn yet: sites, and the rows of a map by a random weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from moment_calculus.numerics import standard_deviation
from moment_guides.families import mean_field
from moment_inference import Site
from numpyro_moments._host import new_primitive
from numpyro_moments.rules.shapes.moves import MOVES

normal_site_p = new_primitive("normal_site", lambda _, loc, scale, **__: loc)
# The leaves of its posterior are operands.
masked_site_p = new_primitive("masked_site", lambda _, loc, *__, **___: loc)


@dataclass(frozen=True)
class Rows:
    """Draws in which each row has noise of its own."""

    array: jax.Array
    axis: int  # of the rows
    sites: frozenset[str]  # names of the weights whose noise is in the draws


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
        """Return the site after a primitive that moves or repeats elements; else None."""
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
    """Return the axes along which elements repeat, with stride zero, after a move; else None."""
    shape = equation.invars[0].aval.shape
    own = [1 if axis in before else size for axis, size in enumerate(shape)]
    array = np.broadcast_to(np.empty(own, np.int8), shape)
    moved = MOVES[equation.primitive.name](array, **equation.params)
    if not np.may_share_memory(moved, array):  # a reshape of what repeats
        return None
    sizes = enumerate(zip(moved.shape, moved.strides, strict=True))
    return frozenset(axis for axis, (size, stride) in sizes if size > 1 and not stride)


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
            noise = self.parts[0].standard_normal(self.mean)
            self._drawn = mean_field.sample(self.mean, standard_deviation(self.variance), noise)
        return self._drawn if self.axis is None else Rows(self._drawn, self.axis, self.sites)
