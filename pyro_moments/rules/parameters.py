"""What the constructors of distributions do with their parameters."""

from __future__ import annotations

import sys
from typing import Any

import pyro.distributions as dist
import torch

from moment_calculus.composites import Composite
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named

DEPTH = 8  # frames between a rule and the line that called the function


@moment_rule(*named("type_as"))
def type_as(input: Any, other: Any) -> Any:
    """Serve counts that take the dtype of random parameters."""
    if hasattr(input, "sites"):
        raise UnsupportedMoments(
            "type_as of a random value",
            sites=input.sites,
            remedy="give the guide's parameters the dtype that is needed",
        )
    return input.to(_example(other).dtype)


@moment_rule(torch.ones_like, takes=(Composite,))
def ones_like(input: Value, **options: Any) -> torch.Tensor:
    """Serve standard distributions that a random scale transforms."""
    return torch.ones_like(_example(input), **options)


@moment_rule(torch.Tensor.new_empty)
def new_empty(input: Value, size: Any, **options: Any) -> torch.Tensor:
    """Serve the empty value of ``pyro.factor``."""
    return _example(input).new_empty(size, **options)


def _example(operand: Any) -> Any:
    return getattr(operand, "at_mean", operand)


@moment_rule(torch.Tensor.__setitem__)
def setitem(input: Any, key: Any, value: Any) -> None:
    """Serve the constructor of ``OrderedLogistic``, which fills in probabilities.

    Its rule starts from the predictor instead; the probabilities become NaN, so that nothing else
    can use them.
    """
    if not _fills_in_ordered_logistic():
        raise UnsupportedMoments(
            "a part of a tensor cannot become random in place",
            sites=getattr(value, "sites", getattr(input, "sites", ())),
            remedy="build the tensor with torch.cat",
        )
    input[key] = torch.nan


def _fills_in_ordered_logistic() -> bool:
    frame, constructor = sys._getframe(1), dist.OrderedLogistic.__init__.__code__
    for _ in range(DEPTH):
        if frame is None or frame.f_code is constructor:
            return frame is not None
        frame = frame.f_back  # type: ignore[assignment]
    return False
