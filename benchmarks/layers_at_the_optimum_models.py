"""Layers, priors and inputs of the benchmark of layers at the optimum, the same in both hosts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import at_the_optimum_models as networks
import numpy as np
from models import observed, perceptron, scaled

HIDDEN, NOISE, MISSING = 8, 0.5, 0.2


def weight(host: Any, name: str, *shape: int) -> Any:
    """A weight with the prior of these networks."""
    return host.sample(name, scaled(host)(shape))


def heads(family: str) -> int:
    """Number of outputs that a likelihood takes."""
    return networks.sizes(1, family)[-1]


def through(activation: Callable, depth: int = 1) -> Callable:
    """A perceptron with an activation of the host."""

    def network(host: Any, family: str, x: Any) -> Any:
        sizes = [networks.INPUTS, *[HIDDEN] * depth, heads(family)]
        return perceptron(host, scaled(host), sizes, x, partial(activation, host))

    return network


def over_sequence(summary: Callable) -> Callable:
    """A network of a sequence's summary; the inputs are its values, each with its place."""

    def network(host: Any, family: str, x: Any) -> Any:
        mapped = x[..., None] @ weight(host, "value", 1, HIDDEN)
        hidden = mapped + weight(host, "place", networks.INPUTS, HIDDEN)
        return summary(host, hidden) @ weight(host, "last", HIDDEN, heads(family))

    return network


def attention(host: Any, hidden: Any) -> Any:
    """Attention over a sequence, as textbooks write it."""
    query, key, value = (hidden @ weight(host, name, HIDDEN, HIDDEN) for name in "qkv")
    scores = query @ host.np.swapaxes(key, -1, -2) / HIDDEN**0.5
    return host.softmax(scores) @ value


def attended(host: Any, hidden: Any) -> Any:
    """The mean of a sequence after attention."""
    return attention(host, hidden).mean(-2)


def encoded(host: Any, hidden: Any) -> Any:
    """The mean of a sequence after a layer of an encoder: attention and units, both normalised."""
    hidden = host.standardise(hidden + attention(host, hidden))
    units = host.relu(hidden @ weight(host, "in", HIDDEN, HIDDEN))
    return host.standardise(hidden + units @ weight(host, "out", HIDDEN, HIDDEN)).mean(-2)


def recurrent(host: Any, hidden: Any) -> Any:
    """The last state of a plain recurrent network."""
    state, again = 0.0 * hidden[..., 0, :], weight(host, "again", HIDDEN, HIDDEN)
    for step in range(networks.INPUTS):
        state = host.np.tanh(hidden[..., step, :] + state @ again)
    return state


def gates(host: Any, hidden: Any, count: int) -> tuple[Any, Any]:
    """What a sequence and a state give to each of so many gates."""
    mapped = hidden @ weight(host, "gates", HIDDEN, count * HIDDEN)
    return mapped, weight(host, "again", HIDDEN, count * HIDDEN)


def split(gate: Any, count: int) -> list[Any]:
    """The parts of gates."""
    return [gate[..., k * HIDDEN : (k + 1) * HIDDEN] for k in range(count)]


def lstm(host: Any, hidden: Any) -> Any:
    """The last output of long short-term memory."""
    mapped, again = gates(host, hidden, 4)
    output = memory = 0.0 * mapped[..., 0, :HIDDEN]
    for step in range(networks.INPUTS):
        i, f, g, o = split(mapped[..., step, :] + output @ again, 4)
        memory = host.sigmoid(f) * memory + host.sigmoid(i) * host.np.tanh(g)
        output = host.sigmoid(o) * host.np.tanh(memory)
    return output


def gru(host: Any, hidden: Any) -> Any:
    """The last state of gated recurrent units."""
    mapped, again = gates(host, hidden, 3)
    state = 0.0 * mapped[..., 0, :HIDDEN]
    for step in range(networks.INPUTS):
        r, z, n = split(mapped[..., step, :], 3)
        s, y, m = split(state @ again, 3)
        z = host.sigmoid(z + y)
        state = (1 - z) * host.np.tanh(n + host.sigmoid(r + s) * m) + z * state
    return state


def normalised(depth: int) -> Callable:
    """A perceptron of relus after layers that are normalised."""
    return through(lambda host, x: host.relu(host.standardise(x)), depth)


NETWORKS: dict[str, Callable] = {
    "relu": through(lambda host, x: host.relu(x)),
    "tanh": through(lambda host, x: host.np.tanh(x)),
    "gelu": through(lambda host, x: host.gelu(x)),
    "steps": through(lambda host, x: 1.0 * (x > 0)),
    "steps, 3 layers": through(lambda host, x: 1.0 * (x > 0), 3),
    "softmax": through(lambda host, x: HIDDEN * host.softmax(x)),
    "LayerNorm": normalised(1),
    "LayerNorm, 2 layers": normalised(2),
    "attention": over_sequence(attended),
    "encoder layer": over_sequence(encoded),
    "RNN": over_sequence(recurrent),
    "LSTM": over_sequence(lstm),
    "GRU": over_sequence(gru),
}


def model(host: Any, network: str, family: str) -> Callable:
    """A network with a likelihood."""
    outputs = partial(NETWORKS[network], host, family)
    return observed(host, outputs, networks.likelihood(host, family))


def with_horseshoe(host: Any, family: str) -> Callable:
    """A perceptron of relus whose weights have a horseshoe prior, and whose biases a normal one."""

    def prior(shape: Any) -> Any:
        if len(shape) == 1:
            return scaled(host)(shape)
        return host.package.Horseshoe(0.1).expand(list(shape)).to_event(len(shape))

    sizes = [networks.INPUTS, HIDDEN, heads(family)]
    return observed(
        host, partial(perceptron, host, prior, sizes), networks.likelihood(host, family)
    )


def data(host: Any, family: str, inputs: str) -> tuple[Any, Any]:
    """Inputs that are certain, measured with noise or partly missing, and the target."""
    x, y = networks.data(family)
    random = np.random.default_rng(0)
    if inputs == "uncertain":
        share = np.float32(1 / (1 + NOISE**2))
        variance = np.full_like(x, NOISE**2 * share)
        noisy = (x + NOISE * random.normal(size=x.shape)).astype(np.float32)
        x = host.package.Moments(host.array(share * noisy), variance=host.array(variance))
    elif inputs == "missing":
        holes = np.where(random.random(x.shape) < MISSING, np.nan, x).astype(np.float32)
        x = host.package.Moments.missing(host.array(holes))
    else:
        x = host.array(x)
    return x, host.array(y)
