"""Rules for the parameters of distributions and their validation, by means."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, called_by
from moment_calculus.values.deferred import Composite
from pyro_moments import _host
from pyro_moments.rules.shapes.conversion import fills_in_ordered_logistic
from pyro_moments.rules.table import MeanCheck, moment_rule, named


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities."""
    if not fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.cat",
        )
    # The likelihood's rule starts from the predictor; NaN keeps others from using these.
    input[key] = torch.nan


def _at_mean(operand: Any) -> Any:
    return getattr(operand, "at_mean", operand)


def _comparison(compare: Callable) -> Callable:
    def rule(input: Any, other: Any) -> MeanCheck:
        sites = frozenset().union(*(getattr(operand, "sites", ()) for operand in (input, other)))
        return MeanCheck(compare(_at_mean(input), _at_mean(other)), sites)

    return rule


for _name in ("eq", "gt", "ge", "lt", "le"):
    moment_rule(*named(_name, f"__{_name}__"), takes=(Composite,))(
        _comparison(getattr(operator, _name))
    )


@moment_rule(*named("__and__", "logical_and"), takes=(MeanCheck,))
def both_true(input: Any, other: Any) -> MeanCheck:
    """Serve constraints to an interval."""
    for operand in (input, other):
        if hasattr(operand, "sites"):
            _require_check(operand)
    left, right = (getattr(operand, "outcome", operand) for operand in (input, other))
    sites = frozenset().union(*(getattr(operand, "sites", ()) for operand in (input, other)))
    return MeanCheck(left & right, sites)


@moment_rule(*named("all"), takes=(MeanCheck,))
def all_true(input: MeanCheck, dim: int | None = None, keepdim: bool = False) -> Any:
    """Serve constraints of vectors, which hold if every component's does, and their validation."""
    _require_check(input)
    if dim is not None:
        return MeanCheck(input.outcome.all(dim, keepdim), input.sites)
    if not called_by("torch.distributions.geometric"):  # which validates itself by all()
        raise _random_truth(input)
    return input.outcome.all()


@moment_rule(_host.is_all_true, takes=(MeanCheck,))
def is_all_true(input: MeanCheck) -> torch.Tensor:
    """Serve the validation of distribution parameters."""
    _require_check(input)
    return _host.is_all_true(input.outcome)


def _require_check(operand: Any) -> None:
    if not isinstance(operand, MeanCheck):
        raise _random_truth(operand)


def _random_truth(operand: Any) -> UnsupportedMoments:
    return UnsupportedMoments(
        "the truth of a random value is random",
        sites=operand.sites,
        remedy="do not branch on random values" + OR_DRAW,
    )
