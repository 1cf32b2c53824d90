"""Rules of operations that move the components, and shapes as torch has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from moment_calculus import UnsupportedMoments
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import PendingWeight, Value, broadcast_shape
from pyro_moments.rules.table import MeanCheck, moment_rule, named


def on_meta(input: Any) -> torch.Tensor:
    """Return a tensor of the same shape without memory, to compute shapes with."""
    if not hasattr(input, "shape"):
        return input
    return torch.empty(tuple(input.shape), device="meta")


def checked_axis(dim: int, rank: int) -> int:
    """Return a dimension counted from the front; raise torch's error out of range."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return dim % rank


def permutation_of(input: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> list[int]:
    """Return the old axis at each new place of the permutation ``move``."""
    rank = len(input.shape)
    marked = torch.empty(tuple(range(2, 2 + rank)), device="meta")  # a different size for each axis
    return [size - 2 for size in move(marked).shape]


def axes_of(input: Any, dim: Any) -> tuple[int, ...]:
    """Return the axes of a reduction over ``dim``, from the front; all if it is None."""
    rank = len(input.shape)
    on_meta(input).sum(dim)  # raises torch's own errors: axes out of range or repeated
    if dim is None or (isinstance(dim, Sequence) and not len(dim)):
        return tuple(range(rank))
    dims = dim if isinstance(dim, Sequence) else (dim,)
    return tuple(sorted({checked_axis(d, rank) for d in dims} if rank else ()))


_T, _MT, _H, _MH = (getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH"))

# Functions that permute axes, with what they do to a tensor, and what users write.
_PERMUTATIONS: dict[tuple[Callable, ...], tuple[Callable, str]] = {
    (_MT, _MH, *named("adjoint")): (lambda a: a.mT, "``.mT``, ``.mH`` and ``adjoint`` of matrices"),
    (_T,): (lambda a: a.permute(*range(a.dim())[::-1]), "``.T``"),
    (_H, *named("t")): (torch.Tensor.t, "``.H`` and ``t`` of a matrix"),
    named("transpose", "swapaxes", "swapdims"): (
        torch.Tensor.transpose,
        "``transpose`` and ``swapaxes`` of any two axes",
    ),
    named("permute"): (torch.Tensor.permute, "``permute``"),
    named("movedim", "moveaxis"): (torch.Tensor.movedim, "``movedim`` and ``moveaxis``"),
}


def _permuting(move: Callable, spelling: str) -> Callable:
    def rule(input: Value, *args: Any, **options: Any) -> Value:
        return ops.permute(input, permutation_of(input, lambda a: move(a, *args, **options)))

    rule.__doc__ = f"Serve {spelling}."
    return rule


for _functions, (_move, _spelling) in _PERMUTATIONS.items():
    moment_rule(*_functions, takes=(PendingWeight,), view=True)(_permuting(_move, _spelling))


def _sizes(sizes: tuple) -> tuple[int, ...]:
    """Return sizes that are given one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes


@moment_rule(*named("reshape", "view"), takes=(MeanCheck,), view=True)
def reshape(input: Any, *sizes: Any, shape: Sequence[int] | None = None) -> Any:
    """Serve ``reshape`` and ``view``, also of checks of vector constraints."""
    if isinstance(input, MeanCheck):
        return MeanCheck(input.outcome.reshape(*sizes), input.sites)
    wanted = tuple(shape) if shape is not None else _sizes(sizes)
    if any(isinstance(n, torch.dtype) for n in wanted):
        raise UnsupportedMoments(
            "a view as another dtype", sites=input.sites, remedy="keep the dtype of the model"
        )
    return ops.reshape(input, tuple(on_meta(input).reshape(wanted).shape))


# Functions that only change the shape, by name, with what users write.
_RESHAPES = {
    "atleast_1d": "``torch.atleast_1d`` of one value",
    "flatten": "``flatten`` and ``nn.Flatten``",
    "squeeze": "``squeeze``",
    "unflatten": "``unflatten`` and ``nn.Unflatten``",
}


def _reshaping(function: Callable, spelling: str) -> Callable:
    def rule(input: Value, *args: Any, **options: Any) -> Value:
        return ops.reshape(input, tuple(function(on_meta(input), *args, **options).shape))

    rule.__doc__ = f"Serve {spelling}."
    return rule


for _name, _spelling in _RESHAPES.items():
    _named = named(_name)
    moment_rule(*_named, view=True)(_reshaping(_named[-1], _spelling))


@moment_rule(*named("unsqueeze"), takes=(ops.LogSoftmax, ops.Softmax), view=True)
def unsqueeze(input: Any, dim: int) -> Any:
    """Serve ``unsqueeze``."""
    shape = tuple(on_meta(input).unsqueeze(dim).shape)
    if isinstance(input, ops.LogSoftmax | ops.Softmax):
        if dim not in (-1, len(input.shape)):
            return input.moved(lambda value: ops.reshape(value, shape))
        input = input.gaussian()  # an axis of size one has no classes
    return ops.reshape(input, shape)


@moment_rule(*named("expand", "broadcast_to"), takes=(ops.LogSoftmax, ops.Softmax), view=True)
def expand(input: Any, *sizes: Any, size: Sequence[int] | None = None) -> Any:
    """Serve ``expand``."""
    wanted = tuple(size) if size is not None else _sizes(sizes)
    shape = tuple(on_meta(input).expand(wanted).shape)
    if isinstance(input, ops.LogSoftmax | ops.Softmax):
        if shape[-1] == input.shape[-1]:
            return input.moved(lambda value: ops.broadcast(value, shape))
        input = input.gaussian()  # copies of one class are no classes
    return ops.broadcast(input, shape)


@moment_rule(*named("expand_as"), view=True)
def expand_as(input: Value, other: Any) -> Value:
    """Serve ``expand_as``."""
    return expand(input, tuple(other.shape))


@moment_rule(*named("view_as", "reshape_as"), view=True)
def reshape_as(input: Value, other: Any) -> Value:
    """Serve ``view_as`` and ``reshape_as``."""
    return reshape(input, tuple(other.shape))


@moment_rule(torch.broadcast_tensors, view=True)
def broadcast_tensors(*operands: Any) -> tuple:
    """Serve the broadcasting of distribution parameters."""
    parts: Sequence[Any] = operands[0] if isinstance(operands[0], tuple | list) else operands
    shape = broadcast_shape(*[tuple(part.shape) for part in parts])
    return tuple([ops.broadcast(part, shape) for part in parts])


@moment_rule(*named("clone"), takes=(PendingWeight,))
def clone(input: Value, *, memory_format: Any = None) -> Value:
    """Serve ``clone``: the same random value, not an independent copy of it."""
    return input


@moment_rule(*named("contiguous"), takes=(PendingWeight,), view=True)
def contiguous(input: Value, memory_format: Any = None) -> Value:
    """Serve ``contiguous``."""
    return input


@moment_rule(*named("cat", "concat", "concatenate"))
def cat(tensors: Sequence[Any], dim: int = 0) -> Value:
    """Serve ``torch.cat``."""
    torch.cat([on_meta(tensor) for tensor in tensors], dim)
    rank = len(tensors[0].shape)
    return ops.concatenate(tensors, checked_axis(dim, rank) - rank)


@moment_rule(*named("stack"))
def stack(tensors: Sequence[Any], dim: int = 0) -> Value:
    """Serve ``torch.stack``."""
    torch.stack([on_meta(tensor) for tensor in tensors], dim)
    rank = len(tensors[0].shape) + 1
    return ops.stack(tensors, checked_axis(dim, rank) - rank)


@moment_rule(torch.hstack)
def hstack(tensors: Sequence[Any]) -> Value:
    """Serve ``torch.hstack``."""
    return cat(tensors, 0 if len(tensors[0].shape) == 1 else 1)
