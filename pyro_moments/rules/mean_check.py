"""Outcomes of comparisons, which only the validation of distributions may consume."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.refusals.errors import UnsupportedMoments


class MeanCheck:
    """Outcome of comparing a value, evaluated at its mean.

    Only distributions' validation may consume it: a program that branches on a random value has
    no moments.

    Args:
        outcome: boolean tensor.
        sites: latent sites of the compared value.
    """

    __slots__ = ("outcome", "sites")

    def __init__(self, outcome: torch.Tensor, sites: frozenset[str]) -> None:
        self.outcome, self.sites = outcome, sites

    @property
    def shape(self) -> torch.Size:
        """Shape of the outcome."""
        return self.outcome.shape

    def gaussian(self) -> Any:
        """Refuse: the outcome is random, and at the mean it would be silently wrong."""
        raise UnsupportedMoments(
            "the outcome of a comparison with a random value is random",
            sites=self.sites,
            remedy="use torch.relu or torch.heaviside instead of a mask, or draw the sites by "
            "naming them in sample_sites=",
        )
