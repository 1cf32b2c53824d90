"""Layers whose operands share what they mix, by backward covariances."""

import torch
from torch.nn.functional import linear

from moment_calculus.operations.backward.settled import settled
from moment_calculus.operations.linear.matrices import matmul
from moment_calculus.operations.normalised.softmax import softmax_value
from moment_calculus.operations.recurrent.cells import Weights, gru_cell, lstm_cell, plain_cell
from moment_calculus.operations.shapes import swap_last
from moment_calculus.values.propagation import Propagation
from tests.cases.operand_kinds import LayerCase, Operand

BACKWARD = Propagation(covariance="backward")


def plain_attention(query, key, value):
    return torch.softmax(query @ key.mT, -1) @ value


def attention(query, key, value):
    return matmul(softmax_value(matmul(query, swap_last(key))), value)


def self_attention(x, weight):
    mapped = matmul(x, weight)
    return attention(mapped, mapped, mapped)


def plain_self_attention(x, weight):
    return plain_attention(*(x @ weight,) * 3)


def tanh_cell(x, state, of_input, of_state):
    return plain_cell("tanh")(x, (state,), Weights(of_input, of_state))[0]


def plain_tanh_cell(x, state, of_input, of_state):
    return torch.tanh(linear(x, of_input) + linear(state, of_state))


def gated_unit(x, state, of_input, of_state):
    return gru_cell(x, (state,), Weights(of_input, of_state))[0]


def plain_gated_unit(x, state, of_input, of_state):
    ours, theirs = (linear(*pair).chunk(3, -1) for pair in ((x, of_input), (state, of_state)))
    reset, update = (torch.sigmoid(ours[k] + theirs[k]) for k in range(2))
    return (1 - update) * torch.tanh(ours[2] + reset * theirs[2]) + update * state


def long_memory(x, state, cell, of_input, of_state):
    return lstm_cell(x, (state, cell), Weights(of_input, of_state))[0]


def plain_long_memory(x, state, cell, of_input, of_state):
    gates = (linear(x, of_input) + linear(state, of_state)).chunk(4, -1)
    i, f, o = (torch.sigmoid(gates[k]) for k in (0, 1, 3))
    return o * torch.tanh(f * cell + i * torch.tanh(gates[2]))


def row(name, operands, rule, plain, **options):
    asked = lambda *values: settled(rule(*values).gaussian())  # noqa: E731
    return LayerCase(name, operands, asked, plain, batched=(), propagation=BACKWARD, **options)


TOKENS, STATE = Operand((1, 3, 2), spread=0.3), Operand((2, 2), spread=0.3)


def weights(gates):
    return (Operand((2 * gates, 2), spread=0.3),) * 2


# Approximations; tests/backward measures their errors.
MIXING = [
    row("attention", (TOKENS,) * 3, attention, plain_attention),
    row(
        "self_attention",
        (TOKENS, Operand((2, 2))),
        self_attention,
        plain_self_attention,
        extremes=False,  # scores are of fourth order in these numbers, too large for float32
    ),
    row("tanh_cell", (STATE, STATE, *weights(1)), tanh_cell, plain_tanh_cell),
    row("gated_recurrent_unit", (STATE, STATE, *weights(3)), gated_unit, plain_gated_unit),
    row("lstm_cell", (STATE, STATE, STATE, *weights(4)), long_memory, plain_long_memory),
]
