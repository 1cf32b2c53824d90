"""Rules of conversions to dtypes and devices, and of tensors like random ones."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Composite, Deferred, PendingWeight, Value
from pyro_moments.rules.table import MeanCheck, moment_rule, refused


def example_of(value: Any) -> torch.Tensor:
    """Return a tensor of the value's dtype and device."""
    if isinstance(value, PendingWeight):
        return value.at_mean
    return value.base.mean if isinstance(value, Deferred) else value.gaussian().mean


def _like(input: Value, probe: torch.Tensor) -> Value:
    own = example_of(input)
    if not probe.is_floating_point():
        raise UnsupportedMoments(
            f"a conversion of a random value to {probe.dtype}",
            sites=input.sites,
            remedy="keep a floating-point dtype" + errors.OR_DRAW,
        )
    if probe.dtype == own.dtype and probe.device == own.device:
        return input
    return ops.converted(input, lambda array: array.to(device=probe.device, dtype=probe.dtype))


def _probe(input: Value) -> torch.Tensor:
    own = example_of(input)
    return torch.empty(0, dtype=own.dtype, device=own.device)


def as_number(input: Any) -> Any:
    """Return the outcome of a comparison as the number 0 or 1, other values as they are."""
    condition = input.condition() if isinstance(input, MeanCheck) else input
    return condition.number if isinstance(condition, ops.Condition) else condition


def _plain(argument: Any) -> Any:
    return _probe(argument) if hasattr(argument, "sites") else argument


@moment_rule(torch.Tensor.to, takes=(PendingWeight, MeanCheck))
def to(input: Any, *args: Any, **options: Any) -> Any:
    """Serve ``.to`` of a dtype, a device or another tensor, of comparisons too."""
    input = as_number(input)
    options = {name: _plain(option) for name, option in options.items()}
    if not hasattr(input, "sites"):
        return input.to(*map(_plain, args), **options)
    return _like(input, _probe(input).to(*map(_plain, args), **options))


@moment_rule(torch.Tensor.type_as, takes=(PendingWeight, MeanCheck))
def type_as(input: Any, other: Any) -> Any:
    """Serve ``type_as``."""
    return to(input, other)


def _cast(name: str) -> Any:
    def rule(input: Any, **options: Any) -> Any:
        input = as_number(input)
        if not hasattr(input, "sites"):
            return getattr(input, name)()
        return _like(input, getattr(_probe(input), name)())

    rule.__doc__ = f"Serve ``.{name}()``, of comparisons too."
    return rule


for _name in ("float", "double", "half", "bfloat16", "cpu"):
    moment_rule(getattr(torch.Tensor, _name), takes=(PendingWeight, MeanCheck))(_cast(_name))


def _certain(function: Any) -> Any:
    def rule(input: Value | Composite, *args: Any, **options: Any) -> torch.Tensor:
        if any(hasattr(argument, "sites") for argument in (*args, *options.values())):
            raise UnsupportedMoments(
                "a tensor filled with a random number",
                sites=errors.sites_of(*args, *options.values()),
                remedy="expand the random number instead",
            )
        plain = example_of(input).detach().new_empty(()).expand(tuple(input.shape))
        return function(plain, *args, **options)

    rule.__doc__ = f"Serve ``{function.__name__}``: a certain tensor, made like a random one."
    return rule


CERTAIN = (
    torch.zeros_like,
    torch.ones_like,
    torch.full_like,
    torch.empty_like,
    torch.rand_like,
    torch.Tensor.new_zeros,
    torch.Tensor.new_ones,
    torch.Tensor.new_full,
    torch.Tensor.new_empty,
    torch.Tensor.new_tensor,
)
for _function in CERTAIN:
    moment_rule(_function, takes=(Composite,))(_certain(_function))


refused(
    "detach detach_",
    "a random value without its gradient, which would train the guide on part of the model",
    "detach the certain parameters, or the parameters of the guide, instead",
    summary="``detach``, which would hide on which sites a value depends",
)


def positions(value: Value, count: int) -> torch.Tensor:
    """Return 0, 1, …, count - 1 on the value's device."""
    return torch.arange(count, device=example_of(value).device)
