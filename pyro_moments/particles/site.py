"""Latent sites of a particle, each drawn at most once and as late as possible."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from guides.families import mc_dropout, mean_field
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.dropout.masked_weight import SiteMask, unsupported_operation_error
from moment_calculus.operations.elementwise.arithmetic import site_value
from moment_calculus.values import Gaussian
from pyro_moments._host import vmap_forbids_randomness
from pyro_moments.evaluation import vmap


class Particle:
    """Settings of one run of the program, which vmap repeats for several particles."""

    def __init__(
        self, shared_draws: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        # Names of sites drawn once for all rows; whether means replace draws; whether
        # rows may have noise of their own at all.
        self.shared_draws, self.is_mean, self.by_rows = frozenset(shared_draws), is_mean, by_rows


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

    def __init__(self, name: str, loc: torch.Tensor, scale: torch.Tensor, particle: Any) -> None:
        self.name, self.loc, self.scale, self.particle = name, loc, scale, particle
        self.has_row_noise = False  # whether a map has used noise of its own for each row
        self._drawn: torch.Tensor | None = None

    def moments(self) -> Gaussian:
        """Return the moments of the posterior, for log-densities that have a closed form."""
        moments = mean_field.moments(self.loc, self.scale)
        return site_value(self.name, *moments, Propagation("diagonal"), event_dim=self.loc.dim())

    def draw(self) -> torch.Tensor:
        """Return the one draw of the site; raise SharedDrawNeeded if rows have own noise."""
        if self.particle.is_mean:
            return self.loc
        if self.has_row_noise:
            raise SharedDrawNeeded([self.name])
        if self._drawn is None:
            if vmap_forbids_randomness():
                raise vmap.vmap_error([self.name])
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> torch.Tensor:
        return mean_field.sample(self.loc, self.scale, torch.randn_like(self.loc))

    def use_row_noise(self) -> None:
        """Let one operation give rows own noise; raise SharedDrawNeeded if there is another."""
        if self.has_row_noise or self._drawn is not None:
            raise SharedDrawNeeded([self.name])
        self.has_row_noise = True

    @property
    def may_use_row_noise(self) -> bool:
        """Return whether rows may have noise of their own, as far as is known yet."""
        particle = self.particle
        by_rows = particle.by_rows and not particle.is_mean
        return by_rows and self.name not in particle.shared_draws


class MaskedSite(Site):
    """A weight with one mask for each row of its inputs; rows may be mixed afterwards."""

    may_use_row_noise = False  # its masks differ between rows already

    def __init__(self, name: str, masks: Any, particle: Any) -> None:
        super().__init__(name, masks.loc, masks.loc, particle)
        self.masks = masks  # the posterior, which draws the masks
        self.mask = SiteMask(name, None, per_weight=masks.design.noise == "dropconnect")
        self._noise: torch.Tensor | None = None

    @property
    def is_shared(self) -> bool:
        """Return whether all rows share a mask of each weight, which is right while none mix."""
        return self.mask.per_weight and self.name not in self.particle.shared_draws

    def noise(self, rows: int) -> torch.Tensor:
        """Return noise [rows, ...] that broadcasts with the weight, the same in all of its maps."""
        self.mask.count_rows(rows)  # raises if another map has another number of rows
        if self._noise is None:
            if vmap_forbids_randomness():
                raise vmap.vmap_error([self.name])
            shape, design = tuple(self.loc.shape), self.masks.design
            own = mc_dropout.mask_shape(shape, design.axis, design.noise)
            self._noise = self.masks.noise((1 if self.is_shared else rows, *own))
        return self._noise

    def draw(self) -> torch.Tensor:
        """Return the mean if means replace draws; raise UnsupportedMoments else."""
        if self.particle.is_mean:
            return self.loc
        raise unsupported_operation_error(self.name)  # only maps know which elements share a mask
