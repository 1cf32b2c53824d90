"""Rules of linear maps and products of matrices and vectors."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.errors import UnsupportedMoments
from moment_calculus.operations.dropout.masked_weight import MaskedWeight
from moment_calculus.operations.elementwise.arithmetic import add, multiply
from moment_calculus.operations.linear import maps
from moment_calculus.operations.linear.matrices import matmul as product_of_matrices
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Value
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.torch_shapes import on_meta


def _product(function: Any, left: Any, right: Any) -> Value:
    """Return the product, or raise torch's own error if torch has one."""
    if function is not torch.matmul:
        function(on_meta(left), on_meta(right))
    try:
        return product_of_matrices(left, right)
    except UnsupportedMoments:
        function(on_meta(left), on_meta(right))
        raise


@moment_rule(F.linear, takes=(MaskedWeight,))
def linear(input: Any, weight: Any, bias: Any = None) -> Value:
    """Serve ``F.linear`` and ``nn.Linear``; a random weight may be a vector [in]."""
    if len(weight.shape) == 1:
        product = product_of_matrices(input, weight)
        return product if bias is None else add(product, bias)
    return maps.linear(input, weight, bias)


@moment_rule(*named("matmul", "__matmul__"), takes=(MaskedWeight,))
def matmul(input: Any, other: Any) -> Value:
    """Serve ``@`` and ``torch.matmul``."""
    return _product(torch.matmul, input, other)


@moment_rule(*named("mm"), takes=(MaskedWeight,))
def mm(input: Any, mat2: Any) -> Value:
    """Serve ``torch.mm``."""
    return _product(torch.mm, input, mat2)


@moment_rule(*named("mv"), takes=(MaskedWeight,))
def mv(input: Any, vec: Any) -> Value:
    """Serve ``torch.mv``."""
    return _product(torch.mv, input, vec)


@moment_rule(*named("dot"), takes=(MaskedWeight,))
def dot(input: Any, tensor: Any) -> Value:
    """Serve ``torch.dot``."""
    return _product(torch.dot, input, tensor)


@moment_rule(*named("__rmatmul__"), takes=(MaskedWeight,))
def reversed_matmul(input: Any, other: Any) -> Value:
    """Serve ``tensor @ random`` where torch dispatches on the right operand."""
    return _product(torch.matmul, other, input)


@moment_rule(*named("bmm"))
def bmm(input: Any, mat2: Any) -> Value:
    """Serve ``torch.bmm``."""
    torch.bmm(on_meta(input), on_meta(mat2))
    return product_of_matrices(input, mat2)


def _accumulated(input: Any, product: Any, beta: float, alpha: float) -> Value:
    parts = [(input, beta), (product, alpha)]
    return add(*(multiply(p, n) if _any_random(p) else p * n for p, n in parts))


def _with_addend(function: Any) -> Any:
    def rule(input: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Value:
        function(on_meta(input), on_meta(left), on_meta(right))
        product = left @ right if not _any_random(left, right) else product_of_matrices(left, right)
        return _accumulated(input, product, beta, alpha)

    rule.__doc__ = f"Serve ``torch.{function.__name__}``."
    return rule


def _any_random(*operands: Any) -> bool:
    return any(hasattr(operand, "sites") for operand in operands)


for _function in (torch.addmm, torch.addmv, torch.baddbmm):
    moment_rule(*named(_function.__name__), takes=(MaskedWeight,))(_with_addend(_function))


@moment_rule(*named("outer", "ger"))
def outer(input: Any, vec2: Any) -> Value:
    """Serve ``torch.outer``."""
    torch.outer(on_meta(input), on_meta(vec2))
    return multiply(reshape(input, (*input.shape, 1)), reshape(vec2, (1, *vec2.shape)))
