"""Latent sites of a particle, each drawn at most once and as late as possible."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.operations.elementwise.unary import site_value
from moment_calculus.values import Gaussian
from moment_calculus.values.propagation import Propagation
from moment_guides.families import mc_dropout, mean_field


class SharedDrawNeeded(Exception):
    """Raised if sites have to be drawn once for all rows: the program then runs again.

    It is a plain Exception, because Pyro's handlers rebuild ValueErrors and RuntimeErrors
    without their attributes, and torch's operators turn a TypeError into NotImplemented.
    """

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__(sorted(sites))
        self.sites = frozenset(sites)


class Site:
    """A latent site with a Normal posterior, drawn at most once."""

    def __init__(
        self,
        name: str,
        loc: Array,
        scale: Array,
        standard_normal: Callable[[Array], Array],  # draws like an array
        *,
        is_mean: bool,  # whether the mean replaces the draw
        may_use_row_noise: bool,  # whether rows may have noise of their own, as far as is known
    ) -> None:
        self.name, self.loc, self.scale, self.standard_normal = name, loc, scale, standard_normal
        self.is_mean, self.may_use_row_noise = is_mean, may_use_row_noise
        self.has_row_noise = False  # whether a map has used noise of its own for each row
        self._draw: Array | None = None
        self._moments: Gaussian | None = None

    def moments(self) -> Gaussian:
        """Return the posterior's moments, for log-densities with a closed form."""
        if self._moments is None:
            moments, rank = mean_field.moments(self.loc, self.scale), len(self.loc.shape)
            self._moments = site_value(self.name, *moments, Propagation("diagonal"), event_dim=rank)
        return self._moments

    def draw(self) -> Array:
        """Return the one draw of the site; raise if rows have own noise."""
        if self.is_mean:
            return self.loc
        if self.has_row_noise:
            raise SharedDrawNeeded([self.name])
        if self._draw is None:
            self._draw = mean_field.sample(self.loc, self.scale, self.standard_normal(self.loc))
        return self._draw

    def use_row_noise(self) -> None:
        """Let one operation give rows own noise; raise if there is another."""
        if self.has_row_noise or self._draw is not None:
            raise SharedDrawNeeded([self.name])
        self.has_row_noise = True


class MaskedSite(Site):
    """A weight with one mask for each row of its inputs; rows may be mixed afterwards."""

    def __init__(
        self,
        name: str,
        masks: Any,  # the posterior
        noise: Callable[[tuple[int, ...]], Array],  # draws masks of a shape
        *,
        is_mean: bool,  # whether the mean replaces the draw
        may_share: bool,  # whether all rows may share a mask of each weight: none are mixed
    ) -> None:
        # Rows have no other noise of their own: their masks differ already.
        super().__init__(
            name,
            masks.loc,
            masks.loc,
            self._raise_unsupported,
            is_mean=is_mean,
            may_use_row_noise=False,
        )
        self.masks, self._draw_masks = masks, noise
        self.mask = masks.site_mask(name)
        self.is_shared = may_share and self.mask.per_weight
        self._draws: Array | None = None

    def noise(self, rows: int) -> Array:
        """Return noise [rows, ...] that broadcasts with the weight, one for all its maps."""
        self.mask.count_rows(rows)  # raises if another map has another number of rows
        if self._draws is None:
            design = self.masks.design
            own = mc_dropout.mask_shape(tuple(self.loc.shape), design.axis, design.noise)
            self._draws = self._draw_masks((1 if self.is_shared else rows, *own))
        return self._draws

    def _raise_unsupported(self, like: Array) -> Array:
        raise self.mask.unsupported_operation_error()  # only maps know which elements share a mask


def with_shared_draws(run: Callable[[frozenset[str]], Any]) -> Any:
    """Return what a run gives, given the sites that need one draw for all rows."""
    shared_draws: frozenset[str] = frozenset()
    while True:
        try:
            return run(shared_draws)
        except SharedDrawNeeded as error:
            shared_draws |= error.sites
