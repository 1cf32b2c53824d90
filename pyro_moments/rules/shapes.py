"""Shape operations, indexing and concatenation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moment_calculus import concatenation, indexing, shapes
from moment_calculus.composites import LogSoftmax
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Value
from pyro_moments.checks import MeanCheck
from pyro_moments.rules.table import moment_rule, named


def _sizes(sizes: tuple) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes


def _place(dim: int, rank: int) -> int:
    """A dimension counted from the front; torch's own error if there is none."""
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got "
            f"{dim})"
        )
    return dim % rank


def _plan(input: Any) -> torch.Tensor:
    """A tensor without memory, on which torch works out the shape of a result."""
    return torch.empty(tuple(input.shape), device="meta")


@moment_rule(*named("reshape", "view"), takes=(MeanCheck,), view=True)
def reshape(input: Any, *sizes: Any, shape: Sequence[int] | None = None) -> Any:
    """Serve ``reshape`` and ``view``, of the checks of vector constraints too."""
    if isinstance(input, MeanCheck):
        return MeanCheck(input.outcome.reshape(*sizes), input.sites)
    wanted = tuple(shape) if shape is not None else _sizes(sizes)
    if any(isinstance(n, torch.dtype) for n in wanted):
        raise UnsupportedMoments(
            "a view as another dtype", sites=input.sites, remedy="keep the dtype of the model"
        )
    return shapes.reshape(input, tuple(_plan(input).reshape(wanted).shape))


@moment_rule(*named("flatten"), view=True)
def flatten(input: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Serve ``flatten`` and ``nn.Flatten``."""
    return shapes.reshape(input, tuple(_plan(input).flatten(start_dim, end_dim).shape))


@moment_rule(*named("squeeze"), view=True)
def squeeze(input: Value, dim: Any = None) -> Value:
    """Serve ``squeeze``."""
    plan = _plan(input).squeeze() if dim is None else _plan(input).squeeze(dim)
    return shapes.reshape(input, tuple(plan.shape))


@moment_rule(*named("unsqueeze"), view=True)
def unsqueeze(input: Value, dim: int) -> Value:
    """Serve ``unsqueeze``."""
    return shapes.reshape(input, tuple(_plan(input).unsqueeze(dim).shape))


@moment_rule(*named("expand", "broadcast_to"), takes=(LogSoftmax,), view=True)
def expand(input: Any, *sizes: Any, size: Sequence[int] | None = None) -> Any:
    """Serve ``expand``."""
    if isinstance(input, LogSoftmax):
        return LogSoftmax(expand(input.source, *sizes))
    wanted = tuple(size) if size is not None else _sizes(sizes)
    return shapes.broadcast(input, tuple(_plan(input).expand(wanted).shape))


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
    if isinstance(operands[0], tuple | list):
        operands = tuple(operands[0])
    shape = shapes.broadcast_shape(*(tuple(operand.shape) for operand in operands))
    return tuple(shapes.broadcast(operand, shape) for operand in operands)


_T, _MT = (vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT"))


@moment_rule(_MT, *named("adjoint"), view=True)
def transpose_last(input: Value) -> Value:
    """Serve ``.mT`` of matrices."""
    return shapes.swap_last(input)


@moment_rule(_T, *named("t"), view=True)
def transpose_all(input: Value) -> Value:
    """Serve ``.T`` of one matrix or vector."""
    if len(input.shape) > 2:
        raise UnsupportedMoments(
            f"a transpose of all axes of a value of shape {input.shape}",
            sites=input.sites,
            remedy="swap the two trailing axes with .mT",
        )
    return input if len(input.shape) < 2 else shapes.swap_last(input)


@moment_rule(*named("transpose", "swapaxes", "swapdims"), view=True)
def transpose(input: Value, dim0: int, dim1: int) -> Value:
    """Serve ``transpose`` of the two trailing axes."""
    rank = len(input.shape)
    places = {_place(dim0, rank), _place(dim1, rank)}
    if len(places) == 1:
        return input
    if places != {rank - 1, rank - 2}:
        raise UnsupportedMoments(
            f"transpose of axes {dim0} and {dim1} of a value of shape {input.shape}",
            sites=input.sites,
            remedy="only the two trailing axes can be swapped so far",
        )
    return shapes.swap_last(input)


@moment_rule(*named("cat", "concat", "concatenate"))
def cat(tensors: Sequence[Any], dim: int = 0) -> Value:
    """Serve ``torch.cat``."""
    rank = len(tensors[0].shape)
    return concatenation.concatenate(tensors, _place(dim, rank) - rank)


@moment_rule(torch.Tensor.__getitem__, view=True)
def getitem(input: Value, key: Any) -> Value:
    """Serve indexing and slicing."""
    return indexing.index(input, key)


@moment_rule(*named("unbind"), view=True)
def unbind(input: Value, dim: int = 0) -> tuple[Value, ...]:
    """Serve ``unbind`` and iteration."""
    return indexing.unstack(input, _place(dim, len(input.shape)))


@moment_rule(*named("clone"))
def clone(input: Value, *, memory_format: Any = None) -> Value:
    """Serve ``clone``: the same random value, not an independent copy of it."""
    return input


@moment_rule(*named("contiguous"), view=True)
def contiguous(input: Value, memory_format: Any = None) -> Value:
    """Serve ``contiguous``."""
    return input
