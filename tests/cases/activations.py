"""Rows of activations: the rule, and the function that a user calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from moment_calculus.activations import Integrated, Rescaled, activation
from moment_calculus.special import namespace
from tests.kinds import ActivationCase


def row(name: str, plain: Callable, *parameters: Any, label: str = "", **options) -> ActivationCase:
    """An activation with its parameters, by its name in the table."""
    return ActivationCase(label or name, activation(name, *parameters), plain, **options)


EXPONENTIAL = {"kinks": (), "largest_scale": 3.0, "growth": 1.0}
OSCILLATING = {"kinks": (), "largest_scale": 3.0}
SERIES = {"exact_pairs": False}  # pairs by Mehler's series

ACTIVATIONS = [
    row("relu", torch.relu, dvi_error=2e-3),
    row("leaky_relu", lambda x: F.leaky_relu(x, 0.1), 0.1, dvi_error=2e-3),
    row("leaky_relu", lambda x: F.leaky_relu(x, -0.5), -0.5, label="leaky_relu_steep"),
    row("heaviside", lambda x: torch.heaviside(x, 0 * x), dvi_error=2e-2),
    row("identity", lambda x: x, kinks=()),
    row("abs", torch.abs),
    row("relu6", F.relu6, kinks=(0.0, 6.0)),
    row("hardtanh", F.hardtanh, kinks=(-1.0, 1.0)),
    row("clamp", lambda x: x.clamp(-0.3, 0.8), -0.3, 0.8, kinks=(-0.3, 0.8)),
    row(
        "clamp",
        lambda x: x.clamp(max=0.5),
        None,
        0.5,
        label="clamp_max",
        kinks=(0.5,),
    ),
    row("hardsigmoid", F.hardsigmoid, kinks=(-3.0, 3.0)),
    row("softshrink", F.softshrink, kinks=(-0.5, 0.5)),
    row("hardshrink", F.hardshrink, kinks=(-0.5, 0.5), **SERIES),
    row(
        "threshold",
        lambda x: F.threshold(x, 0.3, -2),
        0.3,
        -2.0,
        kinks=(0.3,),
        **SERIES,
    ),
    row("sigmoid", torch.sigmoid, **SERIES),
    row("tanh", torch.tanh, **SERIES),
    row("logsigmoid", F.logsigmoid, **SERIES),
    row("softplus", F.softplus, **SERIES),
    ActivationCase(
        "softplus_beta",
        activation("softplus", 2.5),
        lambda x: F.softplus(x, 2.5),
        **SERIES,
    ),
    row("silu", F.silu, **SERIES),
    row("mish", F.mish, **SERIES),
    row("hardswish", F.hardswish, kinks=(-3.0, 3.0), **SERIES),
    row("softsign", F.softsign, **SERIES),
    row("tanhshrink", F.tanhshrink, **SERIES),
    row("gelu", F.gelu),
    row("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), **SERIES),
    row("elu", lambda x: F.elu(x, 0.7), 0.7, **SERIES),
    row("celu", lambda x: F.celu(x, 1.5), 1.5, **SERIES),
    row("selu", F.selu, **SERIES),
    row("ndtr", torch.special.ndtr),
    row("erf", torch.erf),
    row("erfc", torch.erfc),
    row("exp", torch.exp, **EXPONENTIAL),
    row("exp2", torch.exp2, **EXPONENTIAL),
    row("expm1", torch.expm1, **EXPONENTIAL),
    row("sin", torch.sin, **OSCILLATING),
    row("cos", torch.cos, **OSCILLATING),
    row("power", torch.square, 2, label="squared"),
    row("power", lambda x: x**3, 3, label="cube"),
    ActivationCase(
        "chain",
        Integrated(lambda x: namespace(x).tanh(2 * namespace(x).tanh(x))),
        lambda x: torch.tanh(2 * torch.tanh(x)),
        **SERIES,
        matrices=6,
    ),
    ActivationCase(
        "mirrored",
        Rescaled(activation("elu"), -2.0, -3.0, 0.5),
        lambda x: 0.5 - 3 * F.elu(-2 * x),
        **SERIES,
    ),
]
