"""Latent sites with Normal posteriors, which are drawn as late as it can be."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from guides.families import mc_dropout, mean_field
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.operations.dropout.masked import Mask, meets_other_operation
from moment_calculus.operations.elementwise.arithmetic import leaf
from moment_calculus.values import Gaussian
from pyro_moments.evaluation import vmap


class Together(Exception):
    """Sites that have to be drawn once for all rows: the program is run anew.

    Nothing more special: Pyro's handlers rebuild ValueErrors and RuntimeErrors and lose what they
    hold, torch's operators take a TypeError for an operand that is not theirs.

    Args:
        sites: their names.
    """

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__(sorted(sites))
        self.sites = frozenset(sites)


class Site:
    """A latent site with a Normal posterior, drawn at most once.

    Args:
        name: the site.
        loc: locations.
        scale: standard deviations, of the same shape.
        particle: what is being run.
    """

    def __init__(self, name: str, loc: torch.Tensor, scale: torch.Tensor, particle: Any) -> None:
        self.name, self.loc, self.scale, self.particle = name, loc, scale, particle
        self.apart = False  # whether rows have had noise of their own
        self._drawn: torch.Tensor | None = None

    def moments(self) -> Gaussian:
        """The moments of its posterior, for log-densities that are known in closed form."""
        moments = mean_field.moments(self.loc, self.scale)
        return leaf(self.name, *moments, Propagation("diagonal"), event_dim=self.loc.dim())

    def draw(self) -> torch.Tensor:
        """The draw, the same for all who ask.

        Raises:
            Together: if rows have had noise of their own.
        """
        if self.particle.is_mean:
            return self.loc
        if self.apart:
            raise Together([self.name])
        if self._drawn is None:
            if vmap.refuses_draws():
                raise vmap.refusal([self.name])
            self._drawn = self._draw()
        return self._drawn

    def _draw(self) -> torch.Tensor:
        return mean_field.sample(self.loc, self.scale, torch.randn_like(self.loc))

    def take_apart(self) -> None:
        """Give each row noise of its own, which one operation may do.

        Raises:
            Together: if the site is used elsewhere.
        """
        if self.apart or self._drawn is not None:
            raise Together([self.name])
        self.apart = True

    @property
    def can_be_apart(self) -> bool:
        """Whether rows may have noise of their own, as far as anybody knows."""
        particle = self.particle
        by_rows = particle.by_rows and not particle.is_mean
        return by_rows and self.name not in particle.together


class MaskedSite(Site):
    """A weight with masks, one for each row of its inputs: rows may be mixed afterwards.

    Args:
        name: the site.
        masks: its posterior, which draws them.
        particle: what is being run.
    """

    can_be_apart = False  # its noise is that of rows already

    def __init__(self, name: str, masks: Any, particle: Any) -> None:
        super().__init__(name, masks.loc, masks.loc, particle)
        self.masks = masks
        self.mask = Mask(name, None, per_weight=masks.design.noise == "dropconnect")
        self._noise: torch.Tensor | None = None

    @property
    def is_shared(self) -> bool:
        """Whether one mask of each weight stands for those of all rows, as long as none mix."""
        return self.mask.per_weight and self.name not in self.particle.together

    def noise(self, rows: int) -> torch.Tensor:
        """Noise [rows, ...] that broadcasts with the weight, the same in all of its maps.

        Raises:
            UnsupportedMoments: if another map has another number of rows.
        """
        self.mask.spend_rows(rows)
        if self._noise is None:
            if vmap.refuses_draws():
                raise vmap.refusal([self.name])
            shape, design = tuple(self.loc.shape), self.masks.design
            own = mc_dropout.mask_shape(shape, design.axis, design.noise)
            self._noise = self.masks.noise((1 if self.is_shared else rows, *own))
        return self._noise

    def draw(self) -> torch.Tensor:
        """Its mean, if that stands for draws.

        Raises:
            UnsupportedMoments: else; which elements share a mask is known in maps alone.
        """
        if self.particle.is_mean:
            return self.loc
        raise meets_other_operation(self.name)
