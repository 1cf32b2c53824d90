"""Linear maps: matrices and vectors in either order."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F

from moment_calculus import linear as calculus
from moment_calculus.operations import add
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named


@moment_rule(F.linear)
def linear(input: Any, weight: Any, bias: Any = None) -> Value:
    """Serve ``F.linear`` and ``nn.Linear``; a random weight may be a vector [in]."""
    if len(weight.shape) == 1:
        product = calculus.matmul(input, weight)
        return product if bias is None else add(product, bias)
    return calculus.linear(input, weight, bias)


@moment_rule(*named("matmul", "__matmul__"))
def matmul(input: Any, other: Any) -> Value:
    """Serve ``@`` and ``torch.matmul``."""
    return calculus.matmul(input, other)


@moment_rule(*named("mm"))
def mm(input: Any, mat2: Any) -> Value:
    """Serve ``torch.mm``."""
    return calculus.matmul(input, mat2)


@moment_rule(*named("mv"))
def mv(input: Any, vec: Any) -> Value:
    """Serve ``torch.mv``."""
    return calculus.matmul(input, vec)


@moment_rule(*named("dot"))
def dot(input: Any, tensor: Any) -> Value:
    """Serve ``torch.dot``."""
    return calculus.matmul(input, tensor)


@moment_rule(*named("__rmatmul__"))
def reversed_matmul(input: Any, other: Any) -> Value:
    """Serve ``tensor @ random`` where torch dispatches on the right operand."""
    return calculus.matmul(other, input)
