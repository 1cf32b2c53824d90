"""The Hessian of a loss and its products with directions, from one graph of the gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pyro_moments.fitting.graphs import CachedGraph, JacobianProducts


class Curvature:
    """The Hessian of a loss at the current parameters [n].

    The graph of the gradient is kept for the last place, because many products are
    computed there.
    """

    def __init__(self, loss: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> None:
        self.leaves, self._rows = leaves, JacobianProducts()
        self._slope = CachedGraph(lambda: slope_of(loss(), leaves), leaves)

    def product(self, direction: np.ndarray) -> np.ndarray:
        """Return the product of the Hessian with a direction [n]."""
        return self._rows.times(direction[None], self._slope(), self.leaves)[0]

    def dense(self) -> np.ndarray:
        """Return the Hessian, [n, n]."""
        slope = self._slope()
        return self._rows.times(np.eye(len(slope)), slope, self.leaves)


def slope_of(loss: torch.Tensor, leaves: list[torch.Tensor]) -> torch.Tensor:
    """Return the gradient of a loss by the leaves as one vector, with its graph."""
    slopes = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    return torch.cat([slope.reshape(-1) for slope in slopes])
