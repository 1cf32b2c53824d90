"""Rules that give the axis of the rows of data in the result of a torch function.

Axes are negative, because broadcasting keeps these. A function without a rule may mix
rows, and so may one that works in place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus.operations import catalogue as ops
from moment_calculus.values import FunctionRegistry
from pyro_moments._host import tree_leaves
from pyro_moments.rules.elementwise import activations, arithmetic
from pyro_moments.rules.elementwise.dropout import bernoulli_draw
from pyro_moments.rules.table import IN_PLACE, VIEWS, named
from pyro_moments.rules.table import RULES as MOMENTS

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


_MODULES = (activations.__name__, arithmetic.__name__)  # of rules of elementwise functions
# Functions that compute element by element, beside those of these rules.
_ELEMENTWISE = (
    "atan2 atanh bernoulli broadcast_tensors ceil clone contiguous detach double dropout eq erfinv "
    "expand_as float floor ge gt le logical_and logical_not logical_or logit lt mvlgamma ne "
    "ones_like round tan to type_as xlogy zeros_like __div__ __invert__ __eq__ __ne__ __lt__ __le__"
    " __gt__ __ge__ __mod__ __rmod__ __floordiv__ __rfloordiv__ __and__ __rand__ __or__ __ror__ "
    "__xor__ __rxor__"
).split()


@RULES.register(
    bernoulli_draw,
    *named(*_ELEMENTWISE),
    *{f for f, rule in MOMENTS.items() if rule.__module__ in _MODULES}.difference(
        named("glu"), IN_PLACE
    ),
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


def _by_strides(function: Callable) -> Rule:
    """Return the rule of a function that returns a view: its strides say where the rows are."""

    def rule(input: Any, *args: Any, **kwargs: Any) -> int | None:
        if any(isinstance(part, Tensor | WithRowAxis) for part in tree_leaves((args, kwargs))):
            return None
        count, strides = input.shape[input.axis], ops.strides_of_rows(input.shape, input.axis)
        line = torch.empty(ops.STEP * count, device="meta").as_strided(input.shape, strides)
        view = function(line, *args, **kwargs)
        return (
            ops.axis_of_rows(view.shape, view.stride(), count) if isinstance(view, Tensor) else None
        )

    return rule


for _function in VIEWS.difference(RULES):
    RULES[_function] = _by_strides(_function)


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
