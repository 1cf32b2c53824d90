"""Leave out the hidden units that carry nothing, in a chain of linear layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]


class Dense(NamedTuple):
    """The arrays of a linear layer."""

    weight: np.ndarray  # [outputs, inputs]
    bias: np.ndarray  # [outputs]


def without_idle_units(layers: Sequence[Dense], between: Sequence[Function]) -> list[Dense]:
    """Return the layers without hidden units that have no inputs, or that no layer takes.

    The next biases take over the constant that a unit without inputs gives; one unit of a
    layer always stays. Between two layers stands a function of single numbers.
    """
    parts = list(layers)
    for _ in parts:  # a unit that goes may leave one before or behind it idle
        for index, function in enumerate(between):
            parts[index], parts[index + 1] = _joint(parts[index], parts[index + 1], function)
    return parts


def _joint(first: Dense, second: Dense, function: Function) -> tuple[Dense, Dense]:
    live, taken = first.weight.any(axis=1), second.weight.any(axis=0)
    constant = function(first.bias[~live]).astype(second.bias.dtype)
    bias = second.bias + second.weight[:, ~live] @ constant
    weight = np.where(live, second.weight, 0)
    kept = np.logical_and(live, taken)
    kept = kept if kept.any() else np.arange(len(kept)) == 0
    return Dense(first.weight[kept], first.bias[kept]), Dense(weight[:, kept], bias)


def site_of(parameter: str, shape: Sequence[int] | None, weights: Mapping[str, Any]) -> str | None:
    """Return the site of a network's parameter: of its name, or with a prefix to it; else None.

    Raises ValueError if there are several, or if the shape, where it is known, is another.
    """
    ends = f".{parameter}", f"/{parameter}"
    names = [name for name in weights if name == parameter or name.endswith(ends)]
    if not names:
        return None
    wanted = weights[names[0]].shape if shape is None else shape
    if len(names) > 1 or tuple(weights[names[0]].shape) != tuple(wanted):
        shapes = ", ".join(f"'{name}' {tuple(weights[name].shape)}" for name in names)
        raise ValueError(
            f"the network's parameter {parameter!r} has the shape {tuple(wanted)}; the sites of "
            f"its name are {shapes}: there has to be one, of that shape"
        )
    return names[0]


def no_sites_of(parameters: Sequence[str], weights: Mapping[str, Any]) -> ValueError:
    """Return the error for a network none of whose parameters is a site of the report."""
    return ValueError(
        f"none of the network's parameters {', '.join(parameters)} is a site of the report: it has "
        f"{', '.join(map(repr, weights))}; pass the network that the model takes its weights for"
    )


def not_given(parameter: str, weights: Mapping[str, Any]) -> ValueError:
    """Return the error for a parameter that is no site, of which the value is not given."""
    return ValueError(
        f"the network's parameter {parameter!r} is no site of the report, which has "
        f"{', '.join(map(repr, weights))}: pass its value as params=fit.params['NAME$params']"
    )


def no_chain(layer: object, allowed: str) -> TypeError:
    """Return the error for a network that is no chain of linear layers and activations."""
    return TypeError(
        f"{type(layer).__name__}: units are left out of {allowed}, where each hidden unit is one "
        "output of a linear layer; use report.weights for other networks"
    )
