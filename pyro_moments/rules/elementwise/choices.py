"""Rules of choices by certain masks, and of the larger or smaller of two operands."""

from __future__ import annotations

from typing import Any

import torch

from moment_calculus.operations.elementwise import choices
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named


@moment_rule(*named("where"))
def where(condition: Any, input: Any, other: Any) -> Value:
    """Serve ``torch.where`` with a certain condition."""
    return choices.where(condition, input, other)


# The method Tensor.where has the operand before the condition.
@moment_rule(torch.Tensor.where)
def where_method(input: Any, condition: Any, other: Any) -> Value:
    """Serve ``Tensor.where`` with a certain condition."""
    return choices.where(condition, input, other)


@moment_rule(*named("masked_fill"))
def masked_fill(input: Any, mask: Any, value: Any) -> Value:
    """Serve ``masked_fill`` with a certain mask; the filling may be infinite."""
    return choices.where(mask, value, input)


moment_rule(*named("masked_fill_"), in_place=True)(masked_fill)


@moment_rule(*named("maximum"))
def maximum(input: Any, other: Any) -> Value:
    """Serve ``torch.maximum``."""
    return choices.maximum(input, other)


@moment_rule(*named("minimum"))
def minimum(input: Any, other: Any) -> Value:
    """Serve ``torch.minimum``."""
    return choices.minimum(input, other)
