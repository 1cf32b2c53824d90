"""The posterior of a site of which the elements are a chain."""

from __future__ import annotations

from typing import Any

import torch
from pyro.distributions import TorchDistribution, constraints

from guides.families import tridiagonal
from guides.families.chained import Chained


class TridiagonalNormal(Chained, TorchDistribution):
    """A Normal whose neighbours in a chain through each event have the correlation ρ, in O(n).

    Args:
        loc: means, [*batch, *event].
        scale: signed scales a, of the same shape: the covariance of neighbours is ρ a_j a_{j+1}.
        correlation: ρ, without axes, in (−½, ½).
        order: of the chain through an event.

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
        """All real arrays of the event shape."""
        return constraints.independent(constraints.real, self.event_dim)

    def expand(self, batch_shape: Any, _instance: Any = None) -> TridiagonalNormal:
        """The same with another batch shape."""
        shape = torch.Size(batch_shape) + self.event_shape
        loc, scale = self.loc.expand(shape), self.scale.expand(shape)
        return TridiagonalNormal(loc, scale, self.correlation, self.order)

    def rsample(self, sample_shape: Any = ()) -> torch.Tensor:
        """Reparameterised draws.

        Args:
            sample_shape: shape of the set of draws.
        """
        loc, scale, correlation = self.chains
        shape = torch.Size(sample_shape) + loc.shape
        noise = torch.randn(shape, dtype=loc.dtype, device=loc.device)
        return self.order.event(tridiagonal.sample(loc, scale, correlation, noise))

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        """Log-density, of the batch shape.

        Args:
            value: [..., *event].
        """
        return tridiagonal.log_density(self.order.chain(value), *self.chains)
