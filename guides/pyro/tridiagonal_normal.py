"""Define the Normal distribution whose neighbouring elements are correlated."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints

from guides.families import tridiagonal
from guides.families.tridiagonal_normal import TridiagonalNormalBase


class TridiagonalNormal(TridiagonalNormalBase, TorchDistribution):
    """A Normal whose neighbours in a chain through each event have correlation ρ, in O(n).

    Source: Posch and Pilz 2020.
    """

    arg_constraints: dict = {}  # noqa: RUF012 (torch's own convention)
    has_rsample = True

    def __init__(
        self,
        loc: torch.Tensor,
        scale: torch.Tensor,
        correlation: torch.Tensor,
        order: tridiagonal.Order,
    ) -> None:
        self.loc, self.scale = torch.broadcast_tensors(loc, scale)
        self.correlation, self.order = correlation, order
        split = self.loc.dim() - len(order.shape)
        super().__init__(self.loc.shape[:split], self.loc.shape[split:], validate_args=False)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """Return all real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def expand(self, batch_shape: Any, _instance: Any = None) -> TridiagonalNormal:
        """Return the same distribution with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Return reparameterised draws [*sample_shape, *batch, *event]."""
        loc, scale, correlation = self.chains
        shape = torch.Size(sample_shape) + loc.shape
        noise = torch.randn(shape, dtype=loc.dtype, device=loc.device)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Return the log-density of values [..., *event], [...]."""
        return tridiagonal.log_density(self.order.chain(value), *self.chains)
