"""The table of activations by name. To add one, write its class and list it here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from moment_calculus.functions.base import Activation, Rescaled
from moment_calculus.functions.families.elementary import Cos, Exp, Expm1, Power, Sin
from moment_calculus.functions.families.elu import ELU
from moment_calculus.functions.families.logistic import Sigmoid, Tanh
from moment_calculus.functions.families.named import (
    Hardswish,
    Mish,
    SiLU,
    Softplus,
    Softsign,
    Tanhshrink,
)
from moment_calculus.functions.families.normal_cdf import GELU, Erf, Erfc, NormalCdf, TanhGELU
from moment_calculus.functions.families.piecewise import (
    PiecewiseLinear,
    clamp,
    hardshrink,
    softshrink,
    threshold,
)
from moment_calculus.functions.families.relu import Heaviside, LeakyReLU, ReLU
from moment_calculus.functions.integrated import Integrated, IntegratedWithInverse, Smooth

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "GELU",
    "Activation",
    "Cos",
    "Erf",
    "Erfc",
    "Exp",
    "Expm1",
    "Hardswish",
    "Heaviside",
    "Integrated",
    "IntegratedWithInverse",
    "LeakyReLU",
    "Mish",
    "NormalCdf",
    "PiecewiseLinear",
    "Power",
    "ReLU",
    "Rescaled",
    "SiLU",
    "Sigmoid",
    "Sin",
    "Smooth",
    "Softplus",
    "Softsign",
    "Tanh",
    "TanhGELU",
    "Tanhshrink",
    "activation",
]

SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


def _softplus(beta: float = 1.0) -> Activation:
    return Softplus() if beta == 1 else Rescaled(Softplus(), beta, 1 / beta, name="softplus_beta")


# Functions from the parameters of an activation to the activation.
ACTIVATIONS: dict[str, Callable[..., Activation]] = {
    "abs": lambda: PiecewiseLinear((0.0,), (-1.0, 1.0), name="abs"),
    "celu": lambda alpha=1.0: Rescaled(ELU(), 1 / alpha, alpha, name="celu"),
    "clamp": clamp,
    "cos": Cos,
    "elu": ELU,
    "erf": Erf,
    "erfc": Erfc,
    "exp": Exp,
    "exp2": lambda: Rescaled(Exp(), math.log(2), name="exp2"),
    "expm1": Expm1,
    "gelu": GELU,
    "gelu_tanh": TanhGELU,
    "hardshrink": hardshrink,
    "hardsigmoid": lambda: PiecewiseLinear((-3.0, 3.0), (0.0, 1 / 6, 0.0), name="hardsigmoid"),
    "hardswish": Hardswish,
    "hardtanh": lambda low=-1.0, high=1.0: clamp(low, high, "hardtanh"),
    "heaviside": Heaviside,
    "identity": lambda: PiecewiseLinear(name="identity"),
    "leaky_relu": LeakyReLU,
    "logsigmoid": lambda: Rescaled(Softplus(), -1.0, -1.0, name="logsigmoid"),
    "mish": Mish,
    "ndtr": NormalCdf,
    "power": Power,
    "relu": ReLU,
    "relu6": lambda: clamp(0.0, 6.0, "relu6"),
    "selu": lambda: Rescaled(ELU(SELU_ALPHA), outer=SELU_SCALE, name="selu"),
    "sigmoid": Sigmoid,
    "silu": SiLU,
    "sin": Sin,
    "softplus": _softplus,
    "softshrink": softshrink,
    "softsign": Softsign,
    "tanh": Tanh,
    "tanhshrink": Tanhshrink,
    "threshold": threshold,
}


def activation(name: str, *arguments: Any, **parameters: Any) -> Activation:
    """Return the activation of a name (ValueError if unknown) with parameters."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation {name!r} is not one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[name](*arguments, **parameters)


_INCREASING = frozenset(
    {Erf, Exp, Expm1, Heaviside, NormalCdf, ReLU, Sigmoid, Softplus, Softsign, Tanh, Tanhshrink}
)


def is_increasing(activation: Activation) -> bool:
    """Return whether an activation never decreases; False if a parameter is an array."""
    kind = type(activation)
    if isinstance(activation, Rescaled):
        return activation.inner * activation.outer > 0 and is_increasing(activation.activation)
    if kind is LeakyReLU or kind is ELU:
        parameter = activation.negative_slope if kind is LeakyReLU else activation.alpha  # type: ignore[attr-defined]
        return isinstance(parameter, int | float) and parameter >= 0
    if isinstance(activation, PiecewiseLinear):
        return all(step >= 0 for step in (*activation.slopes, *activation.jumps))
    return kind in _INCREASING
