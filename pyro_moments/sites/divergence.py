"""KL divergences of Gaussian sites to Normal priors, and of many small sites together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from moment_calculus.likelihoods import divergences

SMALL = 2**12  # components, of which an operation takes no longer than to call it


class Divergence(NamedTuple):
    """A divergence that is still to be computed.

    Args:
        mean: posterior mean.
        variance: posterior variance.
        prior_mean: broadcastable with ``mean``.
        prior_scale: standard deviation of the prior, likewise.
    """

    mean: torch.Tensor
    variance: torch.Tensor
    prior_mean: torch.Tensor
    prior_scale: torch.Tensor

    def of_components(self) -> torch.Tensor:
        """The divergence of every component."""
        mean, variance, prior_mean, prior_scale = self
        prior_variance = prior_scale * prior_scale
        return divergences.gaussian_kl(mean, variance, prior_mean, prior_variance)

    @property
    def kind(self) -> Any:
        """What small divergences that are computed together have in common; None of others.

        What is traced is fused by a compiler, which does better without copies.
        """
        if self.mean.numel() > SMALL or _get_current_dispatch_mode() is not None:
            return None
        first, *others = ((part.shape, part.dtype, part.device) for part in self)
        return first[1:] if others == [first] * len(others) else None


def summed(parts: Sequence[Divergence]) -> torch.Tensor:
    """The sum of divergences of one kind, over their components too.

    Args:
        parts: one at least.
    """
    columns = zip(*parts, strict=True)
    whole = (torch.cat([part.reshape(-1) for part in column]) for column in columns)
    return Divergence(*whole).of_components().sum()
