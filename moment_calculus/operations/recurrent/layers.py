"""Layers of recurrent cells, unrolled over a sequence in one direction or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import namespace
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.operations.recurrent.cells import Cell, State, Weights
from moment_calculus.operations.shapes.concatenation import concatenate, stack
from moment_calculus.operations.shapes.indexing import index


@dataclass(frozen=True)
class Layers:
    """Layers of one kind of cell.

    Attributes:
        cell: of every layer.
        weights: of every layer and direction, both directions of the first layer first.
        bidirectional: whether a second cell reads each sequence from its end.
    """

    cell: Cell
    weights: Sequence[Weights]
    bidirectional: bool = False

    def run(self, inputs: Any, states: State) -> tuple[Any, State]:
        """Return the last layer's hidden values, and the last states of all layers."""
        # inputs [steps, batch, inputs]; each part of the states [layers · directions, batch,
        # hidden], before and after; result [steps, batch, directions · hidden]
        ends: list[State] = []
        for first in range(0, len(self.weights), 1 + self.bidirectional):
            directions = []
            for layer in range(first, first + 1 + self.bidirectional):
                state = tuple(index(part, layer) for part in states)
                hidden, end = self._unrolled(inputs, state, layer)
                directions.append(_stacked(hidden))
                ends.append(end)
            inputs = directions[0] if len(directions) == 1 else _beside(directions)
        return inputs, tuple(_stacked([end[k] for end in ends]) for k in range(len(states)))

    def _unrolled(self, inputs: Any, state: State, layer: int) -> tuple[list[Any], State]:
        steps, hidden = range(inputs.shape[0]), []
        backwards = self.bidirectional and layer % 2 == 1
        for step in reversed(steps) if backwards else steps:
            state = self.cell(index(inputs, step), state, self.weights[layer])
            hidden.append(state[0])
        return hidden[::-1] if backwards else hidden, state


def _stacked(parts: Sequence[Any]) -> Any:
    if any(map(is_value, parts)):
        return stack(parts, -len(parts[0].shape) - 1)
    return namespace(parts[0]).stack(list(parts), axis=0)


def _beside(parts: Sequence[Any]) -> Any:
    if any(map(is_value, parts)):
        return concatenate(parts, -1)
    return namespace(parts[0]).concat(list(parts), axis=-1)
