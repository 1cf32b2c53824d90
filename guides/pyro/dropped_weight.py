"""Define the distribution of a weight whose inputs are dropped."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints

from guides.families import mc_dropout
from guides.families.dropout_texts import no_density
from moment_calculus.operations.dropout.noise import variance_ratio


class DroppedWeight(TorchDistribution):
    """M diag(z) with an inverted mask z over the inputs, for M = loc; it has no density.

    All rows of the inputs share the one mask of a draw. Propagated moments and draws have
    a mask for every row instead: the marginals of each row are the same.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor,
        p: torch.Tensor,
        design: mc_dropout.MaskedSite,
    ) -> None:
        self.loc, self.p, self.design = loc, p, design
        split = loc.dim() - design.event_dim
        super().__init__(loc.shape[:split], loc.shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    @property
    def mean(self) -> torch.Tensor:
        """Return M."""
        return self.loc

    @property
    def variance(self) -> torch.Tensor:
        """Return M² p/(1 − p)."""
        return variance_ratio(self.p) * self.loc.square()

    def expand(self, batch_shape: Any, _instance: Any = None) -> DroppedWeight:
        """Return the same distribution with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        return DroppedWeight(self.loc.expand(shape), self.p, self.design)

    def noise(self, shape: Any) -> torch.Tensor:
        """Return independent noise z of mean 1, e.g. [rows, in] for a mask in every row."""
        options: Any = {"dtype": self.loc.dtype, "device": self.loc.device}
        if self.design.noise == "gaussian":
            return mc_dropout.gaussian(torch.randn(shape, **options), self.p)
        uniform = torch.rand(shape, **options)
        if self.design.temperature is None:
            return mc_dropout.bernoulli(uniform, self.p)
        tiny = torch.finfo(uniform.dtype).eps
        return mc_dropout.relaxed(uniform.clamp(tiny, 1 - tiny), self.p, self.design.temperature)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Draw weights under one mask per draw, differentiably in M, and in p for relaxed masks."""
        own = mc_dropout.mask_shape(tuple(self.loc.shape), self.design.axis, self.design.noise)
        return self.loc * self.noise(torch.Size(sample_shape) + torch.Size(own))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Raise UnsupportedMoments: the distribution has no density."""
        raise no_density(self.design.site)

    def icdf(self, value: torch.Tensor) -> torch.Tensor:
        """Return quantiles of each weight; the probabilities broadcast with the weights."""
        if self.design.noise == "gaussian":
            deviation = variance_ratio(self.p).sqrt() * self.loc.abs()
            return self.loc + deviation * torch.special.ndtri(value)
        scaled = self.loc / (1 - self.p)
        below = torch.where(self.loc < 0, value <= 1 - self.p, value > self.p)
        return torch.where(below, scaled, torch.zeros_like(scaled))
