"""One particle: which sites have noise of their own for each row, and how noise is drawn."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from guides.families import mean_field
from moment_calculus.numerics.arrays import standard_deviation


class Particle:
    """What is run once, or by vmap as often as there are particles.

    Args:
        together: names of the sites that are drawn once for all rows.
        is_mean: whether the means of the sites stand for draws.
        by_rows: whether rows may have noise of their own at all.
    """

    def __init__(
        self, together: Collection[str] = (), is_mean: bool = False, *, by_rows: bool = True
    ) -> None:
        self.together, self.is_mean, self.by_rows = frozenset(together), is_mean, by_rows
        self.noise: list[tuple[frozenset[str], torch.Tensor]] = []
        self.differentiable = False  # whether derivatives by the noise will be asked for
        self.disturbed = 0  # of so many rows the odd ones get other noise

    def rows(self, rows: Any) -> torch.Tensor:
        """Rows with noise of their own.

        Args:
            rows: an :class:`pyro_moments.particles.undrawn.UndrawnRows`.
        """
        noise = torch.randn_like(rows.mean_)
        if rows.many and len(noise) == self.disturbed:
            noise[1::2] *= -1
        if self.differentiable and rows.many and len(noise) > 1:
            sites = frozenset(site.name for site in rows.sites)
            self.noise.append((sites, noise.requires_grad_()))
        return mean_field.sample(rows.mean_, standard_deviation(rows.variance_), noise)

    def masked(self, inputs: torch.Tensor, site: Any) -> torch.Tensor:
        """Inputs with a mask for each row.

        Args:
            inputs: of a map, rows of them or one.
            site: a :class:`pyro_moments.particles.site.MaskedSite`.
        """
        noise = site.masks.noise(inputs.shape)
        if inputs.dim() > 1 and len(inputs) == self.disturbed:
            noise = noise.detach().clone()
            noise[1::2] = noise[1::2].roll(1, -1)
        if self.differentiable and inputs.dim() > 1 and len(inputs) > 1:
            noise = noise.detach().requires_grad_()
            self.noise.append((frozenset([site.name]), noise))
        return inputs * noise
