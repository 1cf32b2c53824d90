"""Outcomes of comparisons, which only the validation of distributions may use."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.errors import UnsupportedMoments


class MeanCheck:
    """The outcome of a comparison of random values, evaluated at their means.

    Only the validation of distributions may use it: a program that branches on a random
    value has no moments.
    """

    __slots__ = ("outcome", "sites")

    def __init__(self, outcome: torch.Tensor, sites: frozenset[str]) -> None:
        self.outcome, self.sites = outcome, sites

    @property
    def shape(self) -> torch.Size:
        """Return the shape of the outcome."""
        return self.outcome.shape

    def gaussian(self) -> Any:
        """Raise UnsupportedMoments: the outcome is random, and its value at the mean is wrong."""
        raise UnsupportedMoments(
            "the outcome of a comparison with a random value is random",
            sites=self.sites,
            remedy="use torch.relu or torch.heaviside instead of a mask, or draw the sites by "
            "naming them in sample_sites=",
        )
