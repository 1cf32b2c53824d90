"""Activations, as functions and as modules: one line each."""

from __future__ import annotations

from typing import Any

from moment_calculus import activations as calculus
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations import apply
from moment_calculus.values import Deferred, Value
from pyro_moments.rules.table import moment_rule, named


@moment_rule(*named("relu"))
def relu(input: Value, inplace: bool = False) -> Deferred:
    """Serve ``torch.relu``, ``F.relu`` and ``nn.ReLU``."""
    return apply(calculus.ReLU(), input)


moment_rule(*named("relu_"), in_place=True)(relu)


@moment_rule(*named("leaky_relu"))
def leaky_relu(input: Value, negative_slope: float = 0.01, inplace: bool = False) -> Deferred:
    """Serve ``F.leaky_relu`` and ``nn.LeakyReLU``."""
    return apply(calculus.LeakyReLU(float(negative_slope)), input)


moment_rule(*named("leaky_relu_"), in_place=True)(leaky_relu)


@moment_rule(*named("heaviside"))
def heaviside(input: Value, values: Any = None) -> Deferred:
    """Serve ``torch.heaviside``; its value at zero has probability zero and does not matter."""
    if hasattr(values, "sites"):
        raise UnsupportedMoments(
            "the value of the step at zero is random",
            sites=values.sites,
            remedy="make it certain; at a random argument it does not matter",
        )
    return apply(calculus.Heaviside(), input)


@moment_rule(*named("sigmoid"))
def sigmoid(input: Value) -> Deferred:
    """Serve ``torch.sigmoid`` and ``nn.Sigmoid``."""
    return apply(calculus.Sigmoid(), input)


@moment_rule(*named("tanh"))
def tanh(input: Value) -> Deferred:
    """Serve ``torch.tanh`` and ``nn.Tanh``."""
    return apply(calculus.Tanh(), input)


@moment_rule(*named("exp"))
def exp(input: Value) -> Deferred:
    """Serve ``torch.exp``."""
    return apply(calculus.Exp(), input)
