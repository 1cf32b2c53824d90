"""The posterior of a weight of which the inputs are dropped."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints

from guides.families import mc_dropout
from guides.families.masked_wording import no_density
from moment_calculus.operations.dropout.noise import variance_ratio


class DroppedWeight(TorchDistribution):
    """M diag(z) with inverted masks z over the inputs: a posterior that has no density.

    A draw has one mask, which all rows of its inputs share; the moments and the draws that this
    package propagates have one for every row. Both have the same marginals for each row.

    Args:
        loc: M, of the site's shape.
        p: probability to drop, a tensor without axes.
        design: what is fixed of the site.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor,
        p: torch.Tensor,
        design: mc_dropout.Design,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = loc.dim() - design.event_dim
        super().__init__(loc.shape[:split], loc.shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """All real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def mean(self) -> torch.Tensor:
        """M."""
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        """M² p/(1 − p)."""
        return variance_ratio(self.p) * self.loc.square()

    def expand(self, batch_shape: Any, _instance: Any = None) -> DroppedWeight:
        """The same with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        return DroppedWeight(self.loc.expand(shape), self.p, self.design)

    def noise(self, shape: Any) -> torch.Tensor:
        """Independent noise z of mean one, such as [rows, in] for every row and input.

        Args:
            shape: of the noise.
        """
        options: Any = {"dtype": self.loc.dtype, "device": self.loc.device}
        if self.design.noise == "gaussian":
            return mc_dropout.gaussian(torch.randn(shape, **options), self.p)
        uniform = torch.rand(shape, **options)
        if self.design.temperature is None:
            return mc_dropout.bernoulli(uniform, self.p)
        tiny = torch.finfo(uniform.dtype).eps
        return mc_dropout.relaxed(uniform.clamp(tiny, 1 - tiny), self.p, self.design.temperature)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Weights under one mask for each draw; differentiable in M, and in p if relaxed.

        Args:
            sample_shape: shape of the set of draws.
        """
        own = mc_dropout.mask_shape(tuple(self.loc.shape), self.design.axis, self.design.noise)
        return self.loc * self.noise(torch.Size(sample_shape) + torch.Size(own))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Refuse: there is no density.

        Raises:
            UnsupportedMoments: always.
        """
        raise no_density(self.design.site)

    def icdf(self, value: torch.Tensor) -> torch.Tensor:
        """Quantiles of each weight.

        Args:
            value: probabilities, broadcastable with the weights.
        """
        if self.design.noise == "gaussian":
            deviation = variance_ratio(self.p).sqrt() * self.loc.abs()
            return self.loc + deviation * torch.special.ndtri(value)
        kept = self.loc / (1 - self.p)
        below = torch.where(self.loc < 0, value <= 1 - self.p, value > self.p)
        return torch.where(below, kept, torch.zeros_like(kept))
