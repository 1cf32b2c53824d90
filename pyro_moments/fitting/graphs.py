"""Keep graphs of autograd as long as the parameters do not change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge

from pyro_moments.fitting.parameters import as_array

Made = TypeVar("Made")
BATCHABLE_SIZE = 1 << 15  # elements of a gradient from which on batched backward passes are slower
BATCH_ROOM = 1 << 19  # elements of the largest gradient of all passes in a batch


class CachedGraph(Generic[Made]):
    """A function of the parameters that is kept with its graph until they change."""

    def __init__(self, make: Callable[[], Made], leaves: Sequence[torch.Tensor]) -> None:
        self._make, self._leaves = make, leaves
        self._cached: list[tuple[list, Made]] = []

    def __call__(self) -> Made:
        """Return the last result, or a new one if the parameters have changed."""
        state = [(leaf._version, get_gradient_edge(leaf).node) for leaf in self._leaves]
        if not self._cached or self._cached[0][0] != state:
            self._cached.clear()  # frees the old graph before the new one is made
            self._cached.append((state, self._make()))
        return self._cached[0][1]


class JacobianProducts:
    """Products of rows with the Jacobian of a vector, in batches if its graph allows that."""

    def __init__(self) -> None:
        self._batched = True

    def times(
        self, rows: np.ndarray, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        """Return rows [k, d] times the Jacobian of a vector [d]: [k, elements of the leaves]."""
        width = sum(leaf.numel() for leaf in leaves)
        if not vector.requires_grad or not width:
            return np.zeros([len(rows), width])
        tensor = torch.as_tensor(rows).to(vector)
        batch = _batch_size(vector) if self._batched and len(rows) > 1 else 1
        parts = [self._batch_of_products(part, vector, leaves) for part in tensor.split(batch)]
        return np.concatenate([np.zeros([0, width]), *parts])

    def _batch_of_products(
        self, rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        if self._batched and len(rows) > 1:
            try:
                return _products(rows, vector, leaves, is_batched=True)
            except RuntimeError:  # an operation does not support batched gradients
                self._batched = False
        return np.concatenate([_products(row, vector, leaves, is_batched=False) for row in rows])


def _products(
    rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor], *, is_batched: bool
) -> np.ndarray:
    """Return the products of rows, or of a single row, with the Jacobian."""
    gradients = torch.autograd.grad(
        vector, leaves, rows, retain_graph=True, allow_unused=True, is_grads_batched=is_batched
    )
    count = len(rows) if is_batched else 1
    parts = [
        np.zeros([count, leaf.numel()]) if part is None else as_array(part).reshape(count, -1)
        for part, leaf in zip(gradients, leaves, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def _batch_size(vector: torch.Tensor) -> int:
    """Return how many backward passes are worth a batch."""
    largest = max((math.prod(shape) for shape in _shapes(vector)), default=1)
    return max(1, BATCH_ROOM // max(largest, 1)) if largest < BATCHABLE_SIZE else 1


def _shapes(vector: torch.Tensor) -> Iterator[torch.Size]:
    """Yield the shapes of all gradients in a backward pass."""
    waiting: list[Any] = [vector.grad_fn]
    seen = {None, *waiting}
    while waiting:
        node = waiting.pop()
        yield from (part.shape for part in node._input_metadata)
        following = {function for function, _ in node.next_functions} - seen
        seen |= following
        waiting += following
