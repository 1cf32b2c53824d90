"""Recurrent cells and attention among the operations of random programs."""

import numpy as np

from tests.fuzzer.drawing import Arguments, Shape, array
from tests.fuzzer.kinds import each

HIDDEN = 2


def _weights(rng: np.random.Generator, gates: int, inputs: int, hidden: int) -> dict:
    """Certain weights of a cell."""
    rows = gates * hidden
    return {"c": array(rng, (rows, inputs)), "d": array(rng, (rows, hidden)), "size": hidden}


def of_itself(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Weights of three gates for a value that is input and state of a cell."""
    return _weights(rng, 3, shape[1], shape[1]) if len(shape) == 2 else None


def with_state(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Weights of four gates, and both states."""
    if len(shape) != 2:
        return None
    states = {name: array(rng, (shape[0], HIDDEN)) for name in ("h", "s")}
    return _weights(rng, 4, shape[1], HIDDEN) | states


def of_weights(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Inputs and a state for weights [out, in] of a cell of one gate."""
    if len(shape) != 2:
        return None
    rows = int(rng.integers(1, 3))
    recurrent = array(rng, (shape[0], shape[0]))
    return {"c": array(rng, (rows, shape[1])), "d": recurrent, "h": array(rng, (rows, shape[0]))}


def tokens(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Nothing, for rows of tokens."""
    return {} if len(shape) == 3 else None


def keys(rng: np.random.Generator, shape: Shape) -> Arguments:
    """Certain keys and values, for rows of queries."""
    if len(shape) != 3:
        return None
    count = int(rng.integers(1, 4))
    return {name: array(rng, (shape[0], count, shape[2])) for name in ("c", "d")}


def _attention(query: str, key: str, value: str) -> str:
    parts = ", ".join(f"{part}[:, :, None]" for part in (query, key, value))
    return f"jax.nn.dot_product_attention({parts})[:, :, 0]"


_PARTS = "[..., %s * {size} : %s * {size}]"
_FIRST, _SECOND, _THIRD, _FOURTH = (_PARTS % (k, k + 1) for k in range(4))
_GRU = (
    f"(lambda a, b, h: (lambda r, z: (1 - z) * jnp.tanh(a{_THIRD} + r * b{_THIRD}) + z * h)"
    f"(jax.nn.sigmoid(a{_FIRST} + b{_FIRST}), jax.nn.sigmoid(a{_SECOND} + b{_SECOND})))"
    "({0} @ {c}.T, {0} @ {d}.T, {0})"
)
_LSTM = (
    f"(lambda a: jax.nn.sigmoid(a{_FOURTH}) * jnp.tanh(jax.nn.sigmoid(a{_SECOND}) * {{s}} "
    f"+ jax.nn.sigmoid(a{_FIRST}) * jnp.tanh(a{_THIRD})))({{0}} @ {{c}}.T + {{h}} @ {{d}}.T)"
)
GATES = [
    each("gru_cell", of_itself, "torch.gru_cell({0}, {0}, {c}, {d})", _GRU, mixes=True, hard=True),
    each(
        "lstm_cell",
        with_state,
        "torch.lstm_cell({0}, ({h}, {s}), {c}, {d})[0]",
        _LSTM,
        mixes=True,
        hard=True,
    ),
    each(
        "weights_of_a_cell",
        of_weights,
        "torch.rnn_tanh_cell({c}, {h}, {0}, {d})",
        "jnp.tanh({c} @ {0}.T + {h} @ {d}.T)",
        mixes=True,
        hard=True,
    ),
    each(
        "attention",
        keys,
        "F.scaled_dot_product_attention({0}, {c}, {d})",
        _attention("{0}", "{c}", "{d}"),
        mixes=True,
        mixes_again=True,
    ),
    each(
        "attention_to_itself",
        tokens,
        "F.scaled_dot_product_attention({0}, {0}, {0})",
        _attention("{0}", "{0}", "{0}"),
        mixes=True,
        mixes_again=True,
        hard=True,
    ),
]
