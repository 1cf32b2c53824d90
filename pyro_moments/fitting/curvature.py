"""The Hessian of a loss, and its products with directions, from one graph of the slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from pyro_moments.fitting.parameters import as_array

SMALL = 1 << 15  # elements of a step of a backward pass from which on several together are slower
ROOM = 1 << 19  # elements of the largest step of the backward passes that are made together


class Curvature:
    """How the slope of a loss changes with its parameters, where they are.

    The graph of the slope is kept for the last place: many products are asked for at one.

    Args:
        loss: makes one that can be differentiated twice.
        leaves: its parameters.
    """

    def __init__(self, loss: Callable[[], torch.Tensor], leaves: list[torch.Tensor]) -> None:
        self.loss, self.leaves = loss, leaves
        self._batched = True  # until it fails
        self._slopes_at: dict[tuple, torch.Tensor] = {}  # the last, by versions of the leaves

    def along(self, direction: np.ndarray) -> np.ndarray:
        """The product of the Hessian with a direction.

        Args:
            direction: of the parameters, [n].
        """
        slope = self._slope()
        return self._row(slope, torch.as_tensor(direction).to(slope))

    def dense(self) -> np.ndarray:
        """The Hessian, [n, n]."""
        slope = self._slope()
        together = min(len(slope), _together(slope)) if self._batched else 1
        if together > 1:
            try:
                return self._in_batches(slope, together)
            except RuntimeError:  # an operation without a rule for batches
                self._batched = False
        return np.stack([self._row(part) for part in slope])

    def _slope(self) -> torch.Tensor:
        versions = tuple(leaf._version for leaf in self.leaves)
        if versions not in self._slopes_at:
            self._slopes_at.clear()
            slopes = torch.autograd.grad(
                self.loss(), self.leaves, create_graph=True, materialize_grads=True
            )
            self._slopes_at[versions] = torch.cat([slope.reshape(-1) for slope in slopes])
        return self._slopes_at[versions]

    def _row(self, slope: torch.Tensor, direction: torch.Tensor | None = None) -> np.ndarray:
        parts = torch.autograd.grad(
            slope, self.leaves, direction, retain_graph=True, materialize_grads=True
        )
        return np.concatenate([as_array(part) for part in parts])

    def _in_batches(self, slope: torch.Tensor, together: int) -> np.ndarray:
        directions = torch.eye(len(slope), dtype=slope.dtype, device=slope.device)
        return np.concatenate([self._rows(slope, part) for part in directions.split(together)])

    def _rows(self, slope: torch.Tensor, directions: torch.Tensor) -> np.ndarray:
        parts = torch.autograd.grad(
            slope,
            self.leaves,
            directions,
            retain_graph=True,
            allow_unused=True,  # torch would not make rows of zeros of them
            is_grads_batched=True,
        )
        size, rows = len(directions), []
        for part, leaf in zip(parts, self.leaves, strict=True):
            row = np.zeros(size * leaf.numel()) if part is None else as_array(part)
            rows.append(row.reshape(size, -1))
        return np.concatenate(rows, axis=1)


def _together(slope: torch.Tensor) -> int:
    """How many backward passes are worth making together."""
    largest = max((math.prod(shape) for shape in _shapes(slope)), default=1)
    return ROOM // max(largest, 1) if largest < SMALL else 1


def _shapes(slope: torch.Tensor) -> Iterator[torch.Size]:
    """Of all gradients in a backward pass."""
    waiting: list[Any] = [slope.grad_fn]
    seen = {None, *waiting}
    while waiting:
        node = waiting.pop()
        yield from (part.shape for part in node._input_metadata)
        following = {function for function, _ in node.next_functions} - seen
        seen |= following
        waiting += following
