"""Rules that give the axis of the rows of data in the result of a torch function.

Axes are negative, because broadcasting keeps these. A function without a rule may mix
rows, and so may one that works in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.values.propagation import FunctionRegistry
from pyro_moments.rules.elementwise.dropout import bernoulli_draw
from pyro_moments.rules.table import named

Tensor = torch.Tensor
Rule = Callable[..., int | None]
RULES: FunctionRegistry[Callable] = FunctionRegistry()
"""From operands, tensors or :class:`WithRowAxis`, to the axis in the result; None: rows mix."""


class WithRowAxis:
    """A tensor with the (negative) axis of its rows."""

    def __init__(self, tensor: Tensor, axis: int) -> None:
        self.tensor, self.axis, self.shape = tensor, axis, tensor.shape

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)


def _common_row_axis(operands: Any) -> int | None:
    """Return the axis of the rows if it is the same in all operands that have rows, else None."""
    axes: set[int] = set()
    for operand in operands:
        if isinstance(operand, WithRowAxis):
            axes.add(operand.axis)
        elif type(operand) in (tuple, list):
            axes |= {part.axis for part in operand if isinstance(part, WithRowAxis)}
    return axes.pop() if len(axes) == 1 else None


_BINARY = "add sub mul truediv pow floordiv mod and or xor".split()
_UNARY = (
    "abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bernoulli "
    "broadcast_tensors ceil celu clamp clamp_max clamp_min clone contiguous cos cosh detach "
    "digamma div double dropout elu eq erf erfc erfinv exp exp2 expand_as expm1 float floor "
    "ge gelu gt hardsigmoid hardswish hardtanh isfinite isinf isnan le leaky_relu lerp lgamma "
    "log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logit "
    "logsigmoid lt masked_fill maximum minimum mish mul multiply mvlgamma nan_to_num ne neg "
    "negative ones_like positive pow prelu reciprocal relu relu6 round rsqrt rsub selu sigmoid "
    "sign silu sin sinh softplus softsign sqrt square sub subtract tan tanh tanhshrink threshold "
    "to true_divide type_as where xlogy zeros_like"
).split()


@RULES.register(
    bernoulli_draw,
    *named(*_UNARY),
    *named(*(f"__{start}{name}__" for name in _BINARY for start in ("", "r"))),
    *named("__neg__", "__abs__", "__invert__", "__pos__", "__div__", "__rdiv__"),
    *named(*(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge"))),
)
def _elementwise(
    *operands: Any, inplace: bool = False, out: Any = None, **named_: Any
) -> int | None:
    return None if inplace or out is not None else _common_row_axis((*operands, *named_.values()))


@RULES.register(F.binary_cross_entropy_with_logits, F.binary_cross_entropy)
def _entropy(*operands: Any, reduction: str = "mean", **_: Any) -> int | None:
    return _common_row_axis(operands) if reduction == "none" else None


@RULES.register(*named("softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"))
def _normalised_along(input: Any, dim: Any = None, *_: Any, **__: Any) -> int | None:
    if not isinstance(input, WithRowAxis) or dim is None:
        return None
    return None if input.axis in _negative(dim, input.dim()) else input.axis


@RULES.register(*named("flip"))
def _flipped(input: Any, *dims: Any) -> int | None:
    return _normalised_along(input, dims[0] if len(dims) == 1 else dims) if dims else None


@RULES.register(*named("var", "std"))
def _spread(input: Any, dim: Any = None, *, keepdim: bool = False, **_: Any) -> int | None:
    return _reduced(input, dim, keepdim=keepdim)


@RULES.register(*named("sum", "mean", "prod", "logsumexp", "amax", "amin", "all", "any", "argmax"))
def _reduced(
    input: Any, dim: Any = None, *rest: Any, keepdim: bool = False, **_: Any
) -> int | None:
    if not isinstance(input, WithRowAxis) or dim is None or isinstance(dim, bool) or len(rest) > 1:
        return None
    gone, kept = _negative(dim, input.dim()), keepdim or (bool(rest) and rest[0] is True)
    if input.axis in gone or not gone:
        return None
    return input.axis if kept else input.axis + sum(axis > input.axis for axis in gone)


def _negative(dim: Any, rank: int) -> list[int]:
    dims = dim if isinstance(dim, tuple | list) else [dim]
    return [axis - rank if axis >= 0 else axis for axis in dims]


@RULES.register(F.linear)
def _linear(input: Any, weight: Any, bias: Any = None) -> int | None:
    certain = not isinstance(weight, WithRowAxis) and not isinstance(bias, WithRowAxis)
    return input.axis if certain and input.axis < -1 else None


@RULES.register(*named("matmul", "__matmul__", "mm", "mv", "bmm"))
def _matmul(input: Any, other: Any) -> int | None:
    if isinstance(input, WithRowAxis) == isinstance(other, WithRowAxis):
        return None
    if isinstance(input, WithRowAxis):
        if input.axis == -1:
            return None
        return input.axis + 1 if other.dim() == 1 else input.axis
    if other.axis == -2 or other.dim() == 1:
        return None
    return other.axis + (input.dim() == 1 and other.axis < -2)


@RULES.register(*named("__rmatmul__"))
def _reversed(input: Any, other: Any) -> int | None:
    return _matmul(other, input)


@RULES.register(*named("t"), Tensor.T.__get__, Tensor.mT.__get__)  # type: ignore[attr-defined]
def _transposed(input: Any) -> int | None:
    return -3 - input.axis if input.dim() == 2 else None


@RULES.register(*named("transpose", "swapaxes", "swapdims"))
def _exchanged(input: Any, dim0: int, dim1: int) -> int | None:
    one, other = _negative([dim0, dim1], input.dim())
    return {one: other, other: one}.get(input.axis, input.axis)


@RULES.register(*named("permute"))
def _permuted(input: Any, *dims: Any) -> int | None:
    order = _negative(dims[0] if len(dims) == 1 else list(dims), input.dim())
    return order.index(input.axis) - len(order)


@RULES.register(*named("unsqueeze"))
def _unsqueezed(input: Any, dim: int) -> int | None:
    (place,) = _negative(dim, input.dim() + 1)
    return input.axis - (place > input.axis - 1)


@RULES.register(*named("squeeze"))
def _squeezed(input: Any, dim: Any = None) -> int | None:
    chosen = range(-input.dim(), 0) if dim is None else _negative(dim, input.dim())
    gone = [axis for axis in chosen if input.shape[axis] == 1]
    return input.axis + sum(axis > input.axis for axis in gone)


@RULES.register(*named("expand", "broadcast_to"))
def _expanded(input: Any, *sizes: Any) -> int | None:
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return input.axis if shape[input.axis] in (-1, input.shape[input.axis]) else None


@RULES.register(*named("reshape", "view"))
def _reshaped(input: Any, *sizes: Any) -> int | None:
    shape = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    if isinstance(shape, torch.dtype):
        return None
    known = math.prod(size for size in shape if size != -1)
    total = math.prod(input.shape)
    new_shape = [total // max(known, 1) if size == -1 else size for size in shape]
    return _with_leading(input, new_shape)


@RULES.register(*named("flatten"))
def _flattened(input: Any, start_dim: int = 0, end_dim: int = -1) -> int | None:
    first, last = (place % input.dim() for place in (start_dim, end_dim))
    shape = list(input.shape)
    return _with_leading(
        input, [*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]]
    )


def _with_leading(input: WithRowAxis, new_shape: Sequence[int]) -> int | None:
    """Return the axis of another shape with the same size and as many elements before it."""
    place = input.dim() + input.axis
    before = math.prod(input.shape[:place])
    for axis, size in enumerate(new_shape):
        if math.prod(new_shape[:axis]) == before and size == input.shape[place]:
            return axis - len(new_shape)
    return None


@RULES.register(Tensor.__getitem__)
def _indexed(input: Any, key: Any) -> int | None:
    """Return the axis of the rows after an index that takes all of them, else None."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if not isinstance(input, WithRowAxis) or not all(map(_is_plain, keys)):
        return None
    missing = input.dim() - sum(part is not None and part is not Ellipsis for part in keys)
    place = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
    keys[place : place + 1] = [slice(None)] * missing
    axis, row_axis, position = 0, None, 0
    for part in keys:
        if part is None:
            position += 1
            continue
        if axis == input.dim() + input.axis:
            row_axis = position if part == slice(None) else None
        axis, position = axis + 1, position + isinstance(part, slice)
    return None if row_axis is None else row_axis - position


def _is_plain(part: Any) -> bool:
    return part is None or part is Ellipsis or type(part) is int or isinstance(part, slice)


@RULES.register(*named("cat", "concat", "concatenate"))
def _joined(tensors: Any, dim: int = 0, **_: Any) -> int | None:
    axis = _common_row_axis(tensors)
    return None if axis in _negative(dim, tensors[0].dim()) else axis


@RULES.register(*named("gather"))
def _gathered(input: Any, dim: int, index: Any) -> int | None:
    if isinstance(index, WithRowAxis) or input.axis in _negative(dim, input.dim()):
        return None
    return input.axis if index.shape[input.axis] == input.shape[input.axis] else None


@RULES.register(F.layer_norm)
def _normalised(input: Any, normalized_shape: Any, *rest: Any, **_: Any) -> int | None:
    return input.axis if input.axis < -len(normalized_shape) else None


@RULES.register(
    *(F.conv1d, F.conv2d, F.conv3d, F.max_pool1d, F.max_pool2d, F.avg_pool1d, F.avg_pool2d),
    *(torch.conv1d, torch.conv2d, torch.conv3d, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d),
)
def _windows(input: Any, *rest: Any, **named_: Any) -> int | None:
    alone = isinstance(input, WithRowAxis) and _common_row_axis((*rest, *named_.values())) is None
    return input.axis if alone and input.axis == -input.dim() and input.dim() > 2 else None
