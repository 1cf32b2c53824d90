"""Rules of activations: functions of the table under all their names in torch."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.likelihoods import is_complementary
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.moves import on_meta
from pyro_moments.rules.table import moment_rule, named, named_rule

# Activations of the table whose functions in torch have options: their rules follow
# below.
WITH_OPTIONS = frozenset(
    "celu clamp elu gelu hardshrink hardtanh heaviside leaky_relu softplus softshrink "
    "threshold".split()
)
# All names that torch has for some of the others.
NAMES = {
    "abs": "abs absolute __abs__",
    "acos": "acos arccos",
    "acosh": "acosh arccosh",
    "asin": "asin arcsin",
    "asinh": "asinh arcsinh",
    "atan": "atan arctan",
    "digamma": "digamma psi",
    "lgamma": "lgamma gammaln",
    "neg": "neg negative __neg__",
    "sigmoid": "sigmoid expit",
    "sign": "sign sgn",
}


def _register_plain(names: str, operation: ops.Operation) -> None:
    def rule(input: Any, inplace: bool = False) -> Any:
        return operation.rule(input)

    takes = (ops.Softmax,) if names == "log" else ()
    summary = f"``{'``, ``'.join(names.split())}``{operation.remark}"
    named_rule(names, *takes, summary=summary)(rule)


for _kind, _operation in ops.FUNCTIONS.items():
    if _kind not in WITH_OPTIONS:
        _register_plain(NAMES.get(_kind, _kind), _operation)


def as_numbers(**parameters: Any) -> dict[str, Any]:
    """Return parameters as numbers; raise if one is random or trained."""
    _refuse_random(**parameters)
    for name, parameter in parameters.items():
        if getattr(parameter, "requires_grad", False):
            raise UnsupportedMoments(
                f"no gradient flows to the parameter {name}",
                remedy=f"pass {name} as a number",
            )
    return {name: None if p is None else float(p) for name, p in parameters.items()}


def _refuse_random(**parameters: Any) -> None:
    for name, parameter in parameters.items():
        if ops.is_value(parameter):
            raise UnsupportedMoments(
                f"the parameter {name} is random",
                sites=parameter.sites,
                remedy=f"make {name} certain" + errors.OR_DRAW,
            )


def _require_range(input: Value, *, above: float, **parameters: Any) -> None:
    for name, number in as_numbers(**parameters).items():
        if not number > above:
            raise UnsupportedMoments(
                f"{name}={number:g} is not above {above:g}",
                sites=input.sites,
                remedy=f"choose a larger {name}",
            )


def _apply_with(kind: str, input: Value, **parameters: Any) -> Value:
    return ops.apply(ops.activation(kind, **as_numbers(**parameters)), input)


@named_rule("leaky_relu")
def leaky_relu(input: Value, negative_slope: float = 0.01, inplace: bool = False) -> Value:
    """Serve ``F.leaky_relu`` and ``nn.LeakyReLU``."""
    return _apply_with("leaky_relu", input, negative_slope=negative_slope)


@named_rule("prelu")
def prelu_(input: Value, weight: Any) -> Value:
    """Serve ``F.prelu`` and ``nn.PReLU``: one slope, or one for each channel (axis 1)."""
    _refuse_random(weight=weight)
    trailing = len(input.shape) - 2
    channels = weight.reshape(-1, *[1] * max(trailing, 0)) if weight.numel() > 1 else weight
    return ops.prelu(input, channels)


@named_rule("elu")
def elu(input: Value, alpha: float = 1.0, inplace: bool = False) -> Value:
    """Serve ``F.elu`` and ``nn.ELU``."""
    return _apply_with("elu", input, alpha=alpha)


@named_rule("celu")
def celu(input: Value, alpha: float = 1.0, inplace: bool = False) -> Value:
    """Serve ``F.celu`` and ``nn.CELU`` for a positive alpha."""
    _require_range(input, alpha=alpha, above=0.0)
    return _apply_with("celu", input, alpha=alpha)


@named_rule("gelu")
def gelu(input: Value, *, approximate: str = "none") -> Value:
    """Serve ``F.gelu`` and ``nn.GELU``, exact and by tanh."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return ops.apply(ops.activation("gelu" if approximate == "none" else "gelu_tanh"), input)


@named_rule("softplus")
def softplus(input: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """Serve ``F.softplus``; beyond the threshold torch is linear, with an error of at most 2e-9."""
    _require_range(input, threshold=threshold, above=19.0)  # below: another function
    _require_range(input, beta=beta, above=0.0)
    return _apply_with("softplus", input, beta=beta)


@named_rule("softshrink")
def softshrink(input: Value, lambd: float = 0.5) -> Value:
    """Serve ``F.softshrink``."""
    _require_range(input, lambd=lambd, above=0.0)
    return _apply_with("softshrink", input, threshold=lambd)


@named_rule("hardshrink")
def hardshrink(input: Value, lambd: float = 0.5) -> Value:
    """Serve ``F.hardshrink``."""
    _require_range(input, lambd=lambd, above=0.0)
    return _apply_with("hardshrink", input, threshold=lambd)


@named_rule("threshold")
def threshold(input: Value, threshold: float, value: float, inplace: bool = False) -> Value:
    """Serve ``F.threshold``."""
    return _apply_with("threshold", input, level=threshold, value=value)


@named_rule("hardtanh")
def hardtanh(
    input: Value, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Value:
    """Serve ``F.hardtanh`` and ``nn.Hardtanh``."""
    return _apply_with("hardtanh", input, low=min_val, high=max_val)


@named_rule("clamp clip", ops.Softmax)
def clamp(input: Any, min: Any = None, max: Any = None) -> Any:
    """Serve ``clamp`` with certain bounds, numbers or tensors."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    _refuse_random(min=min, max=max)
    if _are_probabilities(input) and errors.called_by("torch.distributions.utils"):
        return input  # which torch keeps away from zero
    input = input.gaussian() if isinstance(input, ops.Softmax) else input
    if any(_is_array(bound) for bound in (min, max)):
        lower = input if min is None else ops.at_least(input, min)
        return lower if max is None else ops.at_most(lower, max)
    return _apply_with("clamp", input, low=min, high=max)


def _are_probabilities(value: Any) -> bool:
    """Return whether a value is known to be the probabilities of classes."""
    known = isinstance(value, ops.Softmax) or ops.is_simplex(value)
    return known or is_complementary(ops.unstacked(value))


def _is_array(bound: Any) -> bool:
    """Return whether a bound is an array, or a number that is trained."""
    return bool(getattr(bound, "ndim", 0)) or getattr(bound, "requires_grad", False)


@named_rule("clamp_min")
def clamp_min(input: Value, min: Any) -> Value:
    """Serve ``clamp_min``."""
    return clamp(input, min=min)


@named_rule("clamp_max")
def clamp_max(input: Value, max: Any) -> Value:
    """Serve ``clamp_max``."""
    return clamp(input, max=max)


@named_rule("heaviside")
def heaviside(input: Value, values: Any = None) -> Value:
    """Serve ``torch.heaviside``; its value at zero has probability zero and does not matter."""
    if ops.is_value(values):
        raise UnsupportedMoments(
            "the value of the step at zero is random",
            sites=values.sites,
            remedy="make it certain; at a random argument it does not matter" + errors.OR_DRAW,
        )
    return ops.apply(ops.activation("heaviside"), input)


@moment_rule(*named("glu"))
def glu(input: Value, dim: int = -1) -> Value:
    """Serve ``F.glu`` and ``nn.GLU``: the product of one half and the sigmoid of the other."""
    size = F.glu(on_meta(input), dim).shape[dim]  # raises torch's own errors
    content, gate = ops.split(input, [size, size], dim % len(input.shape))
    return ops.multiply(content, ops.apply(ops.activation("sigmoid"), gate))
