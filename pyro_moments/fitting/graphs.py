"""Graphs of autograd that are kept while the parameters stay where they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch.autograd.graph import get_gradient_edge

from pyro_moments.fitting.parameters import as_array

Made = TypeVar("Made")
SMALL = 1 << 15  # elements of a step of a backward pass from which on several together are slower
ROOM = 1 << 19  # elements of the largest step of the backward passes that are made together


class Kept(Generic[Made]):
    """What was made of parameters with its graph, made anew when they have changed since.

    Args:
        make: makes it.
        leaves: the parameters.
    """

    def __init__(self, make: Callable[[], Made], leaves: Sequence[torch.Tensor]) -> None:
        self._make, self._leaves = make, leaves
        self._known: list[tuple[list, Made]] = []

    def __call__(self) -> Made:
        """The last one, or another."""
        state = [(leaf._version, get_gradient_edge(leaf).node) for leaf in self._leaves]
        if not self._known or self._known[0][0] != state:
            self._known.clear()  # before there are two
            self._known.append((state, self._make()))
        return self._known[0][1]


class Rows:
    """Rows times the Jacobian of a vector, many at once where its graph allows that."""

    def __init__(self) -> None:
        self._batched = True

    def times(
        self, rows: np.ndarray, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        """The products, [k, elements of the leaves].

        Args:
            rows: [k, d].
            vector: with a graph that is kept, [d].
            leaves: by which it is differentiated.
        """
        width = sum(leaf.numel() for leaf in leaves)
        if not vector.requires_grad or not width:
            return np.zeros([len(rows), width])
        given = torch.as_tensor(rows).to(vector)
        together = _together(vector) if self._batched and len(rows) > 1 else 1
        parts = [self._some(part, vector, leaves) for part in given.split(together)]
        return np.concatenate([np.zeros([0, width]), *parts])

    def _some(
        self, rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor]
    ) -> np.ndarray:
        if self._batched and len(rows) > 1:
            try:
                return _products(rows, vector, leaves, is_batched=True)
            except RuntimeError:  # some operation has no rule for many at once
                self._batched = False
        return np.concatenate([_products(row, vector, leaves, is_batched=False) for row in rows])


def _products(
    rows: torch.Tensor, vector: torch.Tensor, leaves: Sequence[torch.Tensor], *, is_batched: bool
) -> np.ndarray:
    """Of rows, or of one alone."""
    found = torch.autograd.grad(
        vector, leaves, rows, retain_graph=True, allow_unused=True, is_grads_batched=is_batched
    )
    count = len(rows) if is_batched else 1
    parts = [
        np.zeros([count, leaf.numel()]) if part is None else as_array(part).reshape(count, -1)
        for part, leaf in zip(found, leaves, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def _together(vector: torch.Tensor) -> int:
    """How many backward passes are worth making together."""
    largest = max((math.prod(shape) for shape in _shapes(vector)), default=1)
    return max(1, ROOM // max(largest, 1)) if largest < SMALL else 1


def _shapes(vector: torch.Tensor) -> Iterator[torch.Size]:
    """Of all gradients in a backward pass."""
    waiting: list[Any] = [vector.grad_fn]
    seen = {None, *waiting}
    while waiting:
        node = waiting.pop()
        yield from (part.shape for part in node._input_metadata)
        following = {function for function, _ in node.next_functions} - seen
        seen |= following
        waiting += following
