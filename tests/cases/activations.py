"""Rows of activations: the rule, and what users of torch and JAX call."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import torch
from jax import nn, scipy
from torch.nn import functional as F

from moment_calculus.functions.table import Integrated, Rescaled, activation
from moment_calculus.numerics.arrays import namespace
from tests.cases.kinds import ActivationCase


def row(
    name: str, torch: Callable, jax: Callable, *parameters: Any, label: str = "", **options
) -> ActivationCase:
    """An activation with its parameters, by its name in the table."""
    return ActivationCase(label or name, activation(name, *parameters), torch, jax, **options)


EXPONENTIAL = {"kinks": (), "largest_scale": 3.0, "growth": 1.0}
OSCILLATING = {"kinks": (), "largest_scale": 3.0}
SERIES = {"exact_pairs": False}  # pairs by Mehler's series

ACTIVATIONS = [
    row("relu", torch.relu, nn.relu, dvi_error=2e-3),
    row(
        "leaky_relu",
        lambda x: F.leaky_relu(x, 0.1),
        lambda x: nn.leaky_relu(x, 0.1),
        0.1,
        dvi_error=2e-3,
    ),
    row(
        "leaky_relu",
        lambda x: F.leaky_relu(x, -0.5),
        lambda x: nn.leaky_relu(x, -0.5),
        -0.5,
        label="leaky_relu_steep",
    ),
    row(
        "heaviside",
        lambda x: torch.heaviside(x, 0 * x),
        lambda x: jnp.heaviside(x, 0.0),
        dvi_error=2e-2,
    ),
    row("identity", lambda x: x, nn.identity, kinks=()),
    row("abs", torch.abs, jnp.abs),
    row("relu6", F.relu6, nn.relu6, kinks=(0.0, 6.0)),
    row("hardtanh", F.hardtanh, nn.hard_tanh, kinks=(-1.0, 1.0)),
    row(
        "clamp",
        lambda x: x.clamp(-0.3, 0.8),
        lambda x: jnp.clip(x, -0.3, 0.8),
        -0.3,
        0.8,
        kinks=(-0.3, 0.8),
    ),
    row(
        "clamp",
        lambda x: x.clamp(max=0.5),
        lambda x: jnp.minimum(x, 0.5),
        None,
        0.5,
        label="clamp_max",
        kinks=(0.5,),
    ),
    row("hardsigmoid", F.hardsigmoid, nn.hard_sigmoid, kinks=(-3.0, 3.0)),
    row(
        "softshrink",
        F.softshrink,
        lambda x: jnp.where(jnp.abs(x) > 0.5, x - 0.5 * jnp.sign(x), 0.0),
        kinks=(-0.5, 0.5),
    ),
    row("hardshrink", F.hardshrink, lambda x: x * (jnp.abs(x) > 0.5), kinks=(-0.5, 0.5), **SERIES),
    row(
        "threshold",
        lambda x: F.threshold(x, 0.3, -2),
        lambda x: jnp.where(x > 0.3, x, -2.0),
        0.3,
        -2.0,
        kinks=(0.3,),
        **SERIES,
    ),
    row("sigmoid", torch.sigmoid, nn.sigmoid, **SERIES),
    row("tanh", torch.tanh, jnp.tanh, **SERIES),
    row("logsigmoid", F.logsigmoid, nn.log_sigmoid, **SERIES),
    row("softplus", F.softplus, nn.softplus, **SERIES),
    ActivationCase(
        "softplus_beta",
        activation("softplus", 2.5),
        lambda x: F.softplus(x, 2.5),
        lambda x: jnp.log1p(jnp.exp(2.5 * x)) / 2.5,
        **SERIES,
    ),
    row("silu", F.silu, nn.silu, **SERIES),
    row("mish", F.mish, nn.mish, **SERIES),
    row("hardswish", F.hardswish, nn.hard_swish, kinks=(-3.0, 3.0), **SERIES),
    row("softsign", F.softsign, nn.soft_sign, **SERIES),
    row("tanhshrink", F.tanhshrink, lambda x: x - jnp.tanh(x), **SERIES),
    row("gelu", F.gelu, lambda x: nn.gelu(x, approximate=False)),
    row("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), nn.gelu, **SERIES),
    row("elu", lambda x: F.elu(x, 0.7), lambda x: nn.elu(x, 0.7), 0.7, **SERIES),
    row("celu", lambda x: F.celu(x, 1.5), lambda x: nn.celu(x, 1.5), 1.5, **SERIES),
    row("selu", F.selu, nn.selu, **SERIES),
    row("ndtr", torch.special.ndtr, scipy.special.ndtr),
    row("erf", torch.erf, scipy.special.erf),
    row("erfc", torch.erfc, scipy.special.erfc),
    row("exp", torch.exp, jnp.exp, **EXPONENTIAL),
    row("exp2", torch.exp2, jnp.exp2, **EXPONENTIAL),
    row("expm1", torch.expm1, jnp.expm1, **EXPONENTIAL),
    row("sin", torch.sin, jnp.sin, **OSCILLATING),
    row("cos", torch.cos, jnp.cos, **OSCILLATING),
    row("power", torch.square, jnp.square, 2, label="squared"),
    row("power", lambda x: x**3, lambda x: x**3, 3, label="cube"),
    ActivationCase(
        "chain",
        Integrated(lambda x: namespace(x).tanh(2 * namespace(x).tanh(x))),
        lambda x: torch.tanh(2 * torch.tanh(x)),
        lambda x: jnp.tanh(2 * jnp.tanh(x)),
        **SERIES,
    ),
    ActivationCase(
        "mirrored",
        Rescaled(activation("elu"), -2.0, -3.0, 0.5),
        lambda x: 0.5 - 3 * F.elu(-2 * x),
        lambda x: 0.5 - 3 * nn.elu(-2 * x),
        **SERIES,
    ),
]
