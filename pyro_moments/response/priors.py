"""The parameters of a model's priors, and priors with numbers added to them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import pyro.distributions as dist
import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch.distributions import constraints

from pyro_moments.evaluation.tensor import MomentTensor
from pyro_moments.evaluation.wrappers import WRAPPERS

# Torch's distributions take one of each group, and derive the others from it on demand.
_ALTERNATIVES = (
    {"probs", "logits"},
    {"covariance_matrix", "precision_matrix", "scale_tril"},
)


def prior_parameters(
    model: Callable, sites: Mapping[str, Any], data: tuple, named: Mapping[str, Any]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the shapes of the priors' parameters in the model, by (site, parameter).

    Parameters that depend on other latent sites are left out.
    """
    latent = {name: site["value"] for name, site in sites.items() if not site["is_observed"]}
    values = {name: value.detach().clone().requires_grad_() for name, value in latent.items()}
    conditioned = poutine.condition(model, data={name: v.clone() for name, v in values.items()})
    with poutine.block():
        trace: Any = poutine.trace(conditioned).get_trace(*data, **named)
    return {
        (name, part): tuple(unbroadcast(tensor).shape)
        for name in latent
        for part, tensor in _shiftable(trace.nodes[name]["fn"]).items()
        if not _depends(tensor, [*values.values()])
    }


def _depends(tensor: torch.Tensor, values: list[torch.Tensor]) -> bool:
    if not tensor.requires_grad:
        return False
    slopes = torch.autograd.grad(tensor.sum(), values, allow_unused=True, retain_graph=True)
    return any(slope is not None for slope in slopes)


def shift_prior(fn: Any, numbers: Mapping[str, torch.Tensor]) -> Any:
    """Return a prior with numbers added to its parameters; masks and expansions stay."""
    if isinstance(fn, WRAPPERS):
        new = copy.copy(fn)
        new.base_dist = shift_prior(fn.base_dist, numbers)
        return new
    shifted_parameters = {
        name: part + numbers.get(name, 0) for name, part in _given_arguments(fn).items()
    }
    return type(fn)(**{**_other_arguments(fn), **shifted_parameters}, validate_args=False)


def unbroadcast(tensor: torch.Tensor) -> torch.Tensor:
    """Return a parameter before torch broadcast it by strides of zero."""
    for axis, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    while tensor.dim() and tensor.shape[0] == 1 and tensor.stride(0) == 0:
        tensor = tensor[0]
    return tensor


def _shiftable(fn: Any) -> dict[str, torch.Tensor]:
    """Return the certain, continuous parameters with which a prior can be made anew."""
    while isinstance(fn, WRAPPERS):
        fn = fn.base_dist
    if isinstance(fn, dist.Delta) or not _can_be_made(fn):
        return {}
    return {
        name: part
        for name, part in _given_arguments(fn).items()
        if isinstance(part, torch.Tensor)
        and not isinstance(part, MomentTensor)
        and part.is_floating_point()
        and not _is_discrete(fn.arg_constraints[name])
    }


def _is_discrete(constraint: Any) -> bool:
    return not constraints.is_dependent(constraint) and constraint.is_discrete


def _given_arguments(base: Any) -> dict[str, Any]:
    """Return what a distribution was made from, by name."""
    attributes = [*vars(base)]
    names = [
        name
        for name in base.arg_constraints
        if name in attributes or isinstance(inspect.getattr_static(base, name, None), property)
    ]
    was_given = [_was_given(name, attributes) for name in names]
    return {name: getattr(base, name) for name, used in zip(names, was_given, strict=True) if used}


def _was_given(name: str, attributes: list[str]) -> bool:
    """Return whether a parameter was given, and not derived from another one later."""
    others = next((group for group in _ALTERNATIVES if name in group), {name}) & {*attributes}
    return name == min(others, key=attributes.index, default=name)


def _arguments(base: Any) -> dict[str, inspect.Parameter]:
    arguments = dict(inspect.signature(type(base).__init__).parameters)
    arguments.pop("self", None)
    arguments.pop("validate_args", None)
    return arguments


def _other_arguments(base: Any) -> dict[str, Any]:
    """Return the arguments of a distribution that are no parameters, such as a dimension."""
    names = _arguments(base).keys() - base.arg_constraints.keys()
    return {name: vars(base)[name] for name in names if name in vars(base)}


def _can_be_made(base: Any) -> bool:
    names = _given_arguments(base).keys() | _other_arguments(base).keys()
    return "validate_args" in inspect.signature(type(base).__init__).parameters and all(
        name in names or argument.default is not inspect.Parameter.empty
        for name, argument in _arguments(base).items()
        if argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    )


class ShiftPriors(Messenger):
    """Handler that adds numbers to the parameters of the priors, by (site, parameter)."""

    def __init__(self, numbers: Mapping[tuple[str, str], torch.Tensor]) -> None:
        super().__init__()
        self.numbers = numbers

    def _pyro_sample(self, msg: Any) -> None:
        numbers = {part: by for (site, part), by in self.numbers.items() if site == msg["name"]}
        if numbers:
            msg["fn"] = shift_prior(msg["fn"], numbers)
