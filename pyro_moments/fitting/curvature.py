"""The Hessian of a loss, and its products with directions, from one graph of the slope."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from pyro_moments.fitting.graphs import Kept, Rows


class Curvature:
    """How the slope of a loss changes with its parameters, where they are.

    The graph of the slope is kept for the last place: many products are asked for at one.

    Args:
        loss: makes one that can be differentiated twice.
        leaves: its parameters.
    """

    def __init__(self, loss: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> None:
        self.leaves, self._rows = leaves, Rows()
        self._slope = Kept(lambda: slope_of(loss(), leaves), leaves)

    def along(self, direction: np.ndarray) -> np.ndarray:
        """The product of the Hessian with a direction.

        Args:
            direction: of the parameters, [n].
        """
        return self._rows.times(direction[None], self._slope(), self.leaves)[0]

    def dense(self) -> np.ndarray:
        """The Hessian, [n, n]."""
        slope = self._slope()
        return self._rows.times(np.eye(len(slope)), slope, self.leaves)


def slope_of(loss: torch.Tensor, leaves: list[torch.Tensor]) -> torch.Tensor:
    """The slope of a loss as one vector, with its graph.

    Args:
        loss: the loss.
        leaves: by which it is differentiated.
    """
    slopes = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
    return torch.cat([slope.reshape(-1) for slope in slopes])
