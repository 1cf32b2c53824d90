"""Rules of linear maps, einsum and reductions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import PendingWeight, Value
from pyro_moments.rules.shapes.conversion import positions
from pyro_moments.rules.shapes.moves import axes_of, checked_axis, on_meta
from pyro_moments.rules.table import moment_rule, named, named_rule, refused


def _product(function: Any, left: Any, right: Any) -> Value:
    """Return the product, or raise torch's own error if torch has one."""
    if function is not torch.matmul:
        function(on_meta(left), on_meta(right))
    try:
        return ops.matmul(left, right)
    except UnsupportedMoments:
        function(on_meta(left), on_meta(right))
        raise


@moment_rule(F.linear, takes=(PendingWeight,))
def linear(input: Any, weight: Any, bias: Any = None) -> Value:
    """Serve ``F.linear`` and ``nn.Linear``; a random weight may be a vector [in]."""
    if len(weight.shape) == 1:
        product = ops.matmul(input, weight)
        return product if bias is None else ops.add(product, bias)
    return ops.linear(input, weight, bias)


@moment_rule(*named("matmul", "__matmul__"), takes=(PendingWeight,))
def matmul(input: Any, other: Any) -> Value:
    """Serve ``@`` and ``torch.matmul``."""
    return _product(torch.matmul, input, other)


@moment_rule(*named("mm"), takes=(PendingWeight,))
def mm(input: Any, mat2: Any) -> Value:
    """Serve ``torch.mm``."""
    return _product(torch.mm, input, mat2)


@moment_rule(*named("mv"), takes=(PendingWeight,))
def mv(input: Any, vec: Any) -> Value:
    """Serve ``torch.mv``."""
    return _product(torch.mv, input, vec)


@moment_rule(*named("dot"), takes=(PendingWeight,))
def dot(input: Any, tensor: Any) -> Value:
    """Serve ``torch.dot``."""
    return _product(torch.dot, input, tensor)


@moment_rule(*named("__rmatmul__"), takes=(PendingWeight,))
def reversed_matmul(input: Any, other: Any) -> Value:
    """Serve ``tensor @ random`` where torch dispatches on the right operand."""
    return _product(torch.matmul, other, input)


@moment_rule(*named("bmm"))
def bmm(input: Any, mat2: Any) -> Value:
    """Serve ``torch.bmm``."""
    torch.bmm(on_meta(input), on_meta(mat2))
    return ops.matmul(input, mat2)


def _accumulated(input: Any, product: Any, beta: float, alpha: float) -> Value:
    parts = [(input, beta), (product, alpha)]
    return ops.add(*(ops.multiply(p, n) if _any_random(p) else p * n for p, n in parts))


def _with_addend(function: Any) -> Any:
    def rule(input: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Value:
        function(on_meta(input), on_meta(left), on_meta(right))
        product = left @ right if not _any_random(left, right) else ops.matmul(left, right)
        return _accumulated(input, product, beta, alpha)

    rule.__doc__ = f"Serve ``torch.{function.__name__}``."
    return rule


def _any_random(*operands: Any) -> bool:
    return any(hasattr(operand, "sites") for operand in operands)


for _function in (torch.addmm, torch.addmv, torch.baddbmm):
    moment_rule(*named(_function.__name__), takes=(PendingWeight,))(_with_addend(_function))


@moment_rule(*named("outer", "ger"))
def outer(input: Any, vec2: Any) -> Value:
    """Serve ``torch.outer``."""
    torch.outer(on_meta(input), on_meta(vec2))
    return ops.multiply(ops.reshape(input, (*input.shape, 1)), ops.reshape(vec2, (1, *vec2.shape)))


@moment_rule(torch.einsum, takes=(PendingWeight,))
def einsum(equation: Any, *operands: Any) -> Any:
    """Serve ``torch.einsum`` of one or two operands, every letter at most once in each."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    if not isinstance(equation, str):
        raise UnsupportedMoments(
            "an Einstein sum in the form of lists",
            sites=errors.sites_of(equation, *operands),
            remedy="write the equation as a string, such as 'bi,oi->bo'",
        )
    torch.einsum(equation, *map(on_meta, operands))
    return ops.einsum(equation, *operands)


@moment_rule(torch.tensordot, takes=(PendingWeight,))
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Serve ``torch.tensordot``."""
    if out is not None:
        raise UnsupportedMoments(
            "a result written to out=", sites=errors.sites_of(a, b), remedy="leave out= away"
        )
    torch.tensordot(on_meta(a), on_meta(b), dims)
    rank_a, rank_b = len(a.shape), len(b.shape)
    if isinstance(dims, int):
        dims = (range(rank_a - dims, rank_a), range(dims))
    letters_a, letters_b = _LETTERS[:rank_a], list(_LETTERS[rank_a : rank_a + rank_b])
    left, right = (
        [checked_axis(int(d), r) for d in ds] for ds, r in zip(dims, (rank_a, rank_b), strict=True)
    )
    for i, j in zip(left, right, strict=True):
        letters_b[j] = letters_a[i]
    kept = [n for i, n in enumerate(letters_a) if i not in left]
    kept += [n for j, n in enumerate(letters_b) if j not in right]
    return ops.einsum(f"{letters_a},{''.join(letters_b)}->{''.join(kept)}", a, b)


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@moment_rule(*named("sum"), takes=(ops.Softmax,))
def sum(input: Any, dim: Any = None, keepdim: bool = False) -> Any:
    """Serve ``sum``: over features, and over independent elements of a batch."""
    axes = axes_of(input, dim)
    if isinstance(input, ops.Softmax):
        if keepdim and axes == (len(input.shape) - 1,):
            return ops.TotalProbability(input.source)
        input = input.gaussian()
    if axes == (len(input.shape) - 1,) and ops.is_simplex(input):
        return torch.ones_like(input.at_mean).mean(-1, keepdim)
    return ops.reduce_sum(input, axes, keepdims=keepdim)


@moment_rule(*named("mean"))
def mean(input: Value, dim: Any = None, keepdim: bool = False) -> Value:
    """Serve ``mean``: over features, and over independent elements of a batch."""
    return ops.reduce_mean(input, axes_of(input, dim), keepdims=keepdim)


@named_rule("cumsum")
def cumsum(input: Value, dim: int) -> Value:
    """Serve ``cumsum``: over features, and over independent elements of a batch."""
    axis = checked_axis(dim, len(input.shape))
    if axis == len(input.shape) - 1 and (found := ops.as_ordered(input)) is not None:
        return found
    return ops.cumulative_sum(input, axis)


@moment_rule(*named("prod"))
def prod(input: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Serve ``prod`` of independent components, or of two."""
    if dim is None:
        input, dim = ops.reshape(input, (on_meta(input).numel(),)), 0
    shape = tuple(on_meta(input).prod(dim, keepdim).shape)
    return ops.reshape(ops.product(input, checked_axis(dim, len(input.shape))), shape)


@moment_rule(*named("diff"))
def diff(input: Value, n: int = 1, dim: int = -1) -> Value:
    """Serve ``diff`` along the features."""
    on_meta(input).diff(n, dim)
    for _ in range(n):
        input = ops.difference(input, checked_axis(dim, len(input.shape)))
    return input


@moment_rule(*named("trace"))
def trace(input: Value) -> Value:
    """Serve ``trace`` of a matrix of independent components."""
    on_meta(input).trace()
    rows = positions(input, min(input.shape))
    flat = ops.reshape(input, (on_meta(input).numel(),))
    return ops.reduce_sum(ops.take(flat, rows * (input.shape[1] + 1), 0))


refused(
    "var std var_mean std_mean norm normalize",
    "a standard deviation or norm of random components depends on what it is divided into",
    "normalise by F.layer_norm, F.group_norm or F.rms_norm, which have moments as a whole"
    + errors.OR_DRAW,
    summary="``var``, ``std`` and norms, and name alternatives",
)


def _require_last(function: str, input: Any, offset: int, *dims: int) -> None:
    rank = len(input.shape)
    if offset or [dim % rank for dim in dims] != [rank - 2, rank - 1]:
        raise UnsupportedMoments(
            f"{function} of other diagonals than the main one of the two last axes",
            sites=input.sites,
            remedy="permute the axes first, or index the components" + errors.OR_DRAW,
        )


@moment_rule(*named("diagonal"))
def diagonal(input: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Serve ``torch.diagonal`` of the two last axes; at the mean, where factors are validated."""
    if errors.called_by("torch.distributions.constraints"):
        return input.at_mean.diagonal(offset, dim1, dim2)
    _require_last("torch.diagonal", input, offset, dim1, dim2)
    return ops.diagonal(input)


@moment_rule(*named("diag_embed"))
def diag_embed(input: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Serve ``torch.diag_embed`` to the two last axes."""
    if offset or (dim1, dim2) != (-2, -1):
        _require_last("torch.diag_embed", input, 1, dim1, dim2)
    return ops.diagonal_matrix(input)


@moment_rule(*named("diag"))
def diag(input: Value, diagonal: int = 0) -> Value:
    """Serve ``torch.diag``: the matrix of a vector, the diagonal of a matrix."""
    if len(input.shape) == 2 or diagonal:
        _require_last("torch.diag", input, diagonal, -2, -1)
        return ops.diagonal(input)
    return ops.diagonal_matrix(input)
