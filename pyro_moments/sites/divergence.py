"""KL divergences of Gaussian sites to Normal priors, and their sum over many small sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from moment_calculus.likelihoods import divergences
from moment_calculus.numerics.derivatives.private_apis import is_untraced

SMALL = 2**12  # components, for which the call of an operation dominates its cost


class Divergence(NamedTuple):
    """A KL divergence of independent Gaussians to Normal priors that is still to be computed."""

    mean: torch.Tensor
    variance: torch.Tensor
    prior_mean: torch.Tensor  # broadcastable with the mean
    prior_scale: torch.Tensor  # standard deviations, broadcastable with the mean

    def of_components(self) -> torch.Tensor:
        """Return the divergence of each component."""
        mean, variance, prior_mean, prior_scale = self
        prior_variance = prior_scale * prior_scale
        return divergences.gaussian_kl(mean, variance, prior_mean, prior_variance)

    @property
    def batch_key(self) -> Any:
        """Return what small divergences that are computed together share; None for others."""
        # A compiler fuses a traced program better without the copies that ``summed``
        # makes.
        if self.mean.numel() > SMALL or not is_untraced():
            return None
        first, *others = ((part.shape, part.dtype, part.device) for part in self)
        return first[1:] if others == [first] * len(others) else None


def summed(parts: Sequence[Divergence]) -> torch.Tensor:
    """Return the sum of divergences of one kind, over their components too."""
    columns = zip(*parts, strict=True)
    whole = (torch.cat([part.reshape(-1) for part in column]) for column in columns)
    return Divergence(*whole).of_components().sum()
