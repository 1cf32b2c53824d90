"""Recurrent cells and layers, unrolled over the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from pyro_moments.rules.table import moment_rule

CELLS: dict[str, ops.Cell] = {
    "lstm": ops.lstm_cell,
    "gru": ops.gru_cell,
    "rnn_tanh": ops.plain_cell("tanh"),
    "rnn_relu": ops.plain_cell("relu"),
}


def _parts(hx: Any) -> tuple[Any, ...]:
    return tuple(hx) if isinstance(hx, tuple | list) else (hx,)


def _cell_rule(name: str) -> Callable:
    def rule(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
        states = CELLS[name](input, _parts(hx), ops.Weights(w_ih, w_hh, b_ih, b_hh))
        return states if name == "lstm" else states[0]

    rule.__doc__ = f"Serve ``torch.{name}_cell`` and its module."
    return rule


def layer_rule(name: str) -> Callable:
    """Return the rule of a recurrent layer, which also takes tensors that are not random."""

    def rule(
        input: Any,
        hx: Any,
        params: Any,
        has_biases: Any,
        num_layers: Any,
        dropout: float = 0.0,
        train: bool = False,
        bidirectional: bool = False,
        batch_first: bool = False,
    ) -> Any:
        if isinstance(has_biases, tuple | list):  # (data, batch_sizes, hx, params, ...)
            raise _packed(errors.sites_of(input, *_parts(params), *has_biases))
        states = _parts(hx)
        if dropout and train and num_layers > 1:
            raise _dropout(errors.sites_of(input, *states, *params))
        layers = ops.Layers(CELLS[name], _weights(states, params, has_biases), bidirectional)
        hidden, last = layers.run(ops.move_axis(input, 1, 0) if batch_first else input, states)
        return (ops.move_axis(hidden, 1, 0) if batch_first else hidden, *last)

    rule.__doc__ = f"Serve ``torch.{name}`` and its module, unrolled over the sequence."
    return rule


def _packed(sites: frozenset[str]) -> UnsupportedMoments:
    return UnsupportedMoments(
        "a recurrent layer over a packed sequence",
        sites=sites,
        remedy="pass the padded sequence, and choose the hidden values at the last step of each "
        "row: out[arange(len(out)), lengths - 1]" + errors.OR_DRAW,
    )


def _dropout(sites: frozenset[str]) -> UnsupportedMoments:
    return UnsupportedMoments(
        "dropout between recurrent layers",
        sites=sites,
        remedy="call .eval() on the module, or stack modules of one layer with nn.Dropout between "
        "them" + errors.OR_DRAW,
    )


def _weights(states: Sequence[Any], params: Any, has_biases: bool) -> list[ops.Weights]:
    """Return the weights of each layer and direction."""
    count = len(params) // states[0].shape[0]
    if count != (4 if has_biases else 2):
        raise UnsupportedMoments(
            "an LSTM with projections (proj_size)",
            sites=errors.sites_of(*params),
            remedy="use proj_size=0, and an nn.Linear behind the module" + errors.OR_DRAW,
        )
    return [ops.Weights(*params[k : k + count]) for k in range(0, len(params), count)]


for _name in CELLS:
    moment_rule(getattr(torch, f"{_name}_cell"))(_cell_rule(_name))
    moment_rule(getattr(torch, _name))(layer_rule(_name))
