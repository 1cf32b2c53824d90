"""Activations by name; one file per family. To add one: write its class, and list it below."""

from __future__ import annotations

from moment_calculus.activations.base import Activation
from moment_calculus.activations.exponential import Exp
from moment_calculus.activations.integrated import Integrated
from moment_calculus.activations.logistic import Sigmoid, Tanh
from moment_calculus.activations.relu import Heaviside, LeakyReLU, ReLU

__all__ = [
    "ACTIVATIONS",
    "Activation",
    "Exp",
    "Heaviside",
    "Integrated",
    "LeakyReLU",
    "ReLU",
    "Sigmoid",
    "Tanh",
    "activation",
]

ACTIVATIONS = {kind.name: kind for kind in (ReLU, LeakyReLU, Heaviside, Sigmoid, Tanh, Exp)}


def activation(name: str, **parameters: float) -> Activation:
    """Look an activation up by its name.

    Args:
        name: a key of :data:`ACTIVATIONS`.
        **parameters: of the activation, such as ``negative_slope``.

    Raises:
        ValueError: if there is no such activation; the message lists the candidates.
    """
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name](**parameters)
