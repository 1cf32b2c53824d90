"""Rules of indexing, splitting and repetition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.conversion import example_of, positions
from pyro_moments.rules.shapes.moves import checked_axis, on_meta
from pyro_moments.rules.table import moment_rule, named, named_rule


@moment_rule(torch.Tensor.__getitem__, view=True)
def getitem(input: Value, key: Any) -> Value:
    """Serve indexing and slicing."""
    return ops.index(input, key)


@moment_rule(*named("select"), view=True)
def select(input: Value, dim: int, index: int) -> Value:
    """Serve ``select``."""
    on_meta(input).select(dim, index)
    return ops.take(input, index, checked_axis(dim, len(input.shape)))


@moment_rule(*named("narrow"), view=True)
def narrow(input: Value, dim: int, start: int, length: int) -> Value:
    """Serve ``narrow``."""
    on_meta(input).narrow(dim, int(start), length)
    axis = checked_axis(dim, len(input.shape))
    start = int(start) % max(input.shape[axis], 1) if start < 0 else int(start)
    return ops.take(input, slice(start, start + length), axis)


@moment_rule(*named("index_select"))
def index_select(input: Value, dim: int, index: torch.Tensor) -> Value:
    """Serve ``index_select``."""
    return ops.take(input, index, checked_axis(dim, len(input.shape)))


@moment_rule(*named("gather"))
def gather(input: Value, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Value:
    """Serve ``gather``."""
    ops.require_certain(index)
    on_meta(input).gather(dim, index.to("meta"))
    axis = checked_axis(dim, len(input.shape))
    for other, size in enumerate(index.shape):
        if other != axis and size != input.shape[other]:
            input = ops.take(input, slice(0, size), other)
    return ops.gather(input, index, axis)


@moment_rule(*named("take_along_dim"))
def take_along_dim(input: Value, indices: torch.Tensor, dim: int | None = None) -> Value:
    """Serve ``take_along_dim``."""
    ops.require_certain(indices)
    if dim is None:
        return ops.index(ops.reshape(input, (on_meta(input).numel(),)), indices.reshape(-1))
    axis = checked_axis(dim, len(input.shape))
    ones = [1 if i == axis else n for i, n in enumerate(input.shape)]
    batch = torch.broadcast_shapes(tuple(ones), _without(indices.shape, axis))
    wide = [input.shape[axis] if i == axis else n for i, n in enumerate(batch)]
    chosen = [indices.shape[axis] if i == axis else n for i, n in enumerate(batch)]
    return ops.gather(ops.broadcast(input, wide), indices.expand(chosen), axis)


def _without(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    return tuple(1 if i == axis else n for i, n in enumerate(shape))


@moment_rule(*named("unbind"), view=True)
def unbind(input: Value, dim: int = 0) -> tuple[Value, ...]:
    """Serve ``unbind`` and iteration."""
    on_meta(input).unbind(dim)
    return ops.unstack(input, checked_axis(dim, len(input.shape)))


def _splitting(name: str) -> Callable:
    """Return the rule of a function whose results are consecutive slices along an axis."""
    function = getattr(torch.Tensor, name)

    def rule(input: Value, *args: Any, **options: Any) -> tuple[Value, ...]:
        shapes = [part.shape for part in function(on_meta(input), *args, **options)]
        whole = tuple(input.shape)
        axis = next((a for a, n in enumerate(whole) if any(s[a] != n for s in shapes)), 0)
        return ops.split(input, [shape[axis] for shape in shapes], axis)

    rule.__doc__ = f"Serve ``{name}``."
    return rule


for _name in ("split", "split_with_sizes", "chunk", "tensor_split", "hsplit"):
    moment_rule(*named(_name), view=True)(_splitting(_name))


def _rearranged(input: Value, move: Any) -> Value:
    """Choose rows along one axis after another, as torch moves a line of integers."""
    for axis, size in enumerate(input.shape):
        line = torch.arange(size, device="cpu").reshape(
            [-1 if i == axis else 1 for i in range(len(input.shape))]
        )
        chosen = move(line).movedim(axis, 0).reshape(size, -1)[:, 0]
        if chosen.tolist() != list(range(size)):
            input = ops.take(input, chosen.to(example_of(input).device), axis)
    return input


def _flipping(name: str) -> Callable:
    function = getattr(torch.Tensor, name)

    def rule(input: Value, *args: Any, **options: Any) -> Value:
        return _rearranged(input, lambda a: function(a, *args, **options))

    rule.__doc__ = f"Serve ``{name}``."
    return rule


for _name in ("flip", "fliplr", "flipud"):
    moment_rule(*named(_name))(_flipping(_name))


@moment_rule(*named("roll"))
def roll(input: Value, shifts: Any, dims: Any = None) -> Value:
    """Serve ``roll``."""
    if dims is None:
        flat = ops.reshape(input, (on_meta(input).numel(),))
        return ops.reshape(_rearranged(flat, lambda a: a.roll(shifts, 0)), input.shape)
    return _rearranged(input, lambda a: a.roll(shifts, dims))


@moment_rule(*named("repeat", "tile"))
def repeat(input: Value, *repeats: Any) -> Value:
    """Serve ``repeat`` and ``tile``."""
    counts = list(repeats[0] if len(repeats) == 1 and isinstance(repeats[0], Sequence) else repeats)
    rank = len(input.shape)
    counts = [1] * (rank - len(counts)) + counts
    on_meta(input).repeat(counts)
    input = ops.reshape(input, (1,) * (len(counts) - rank) + tuple(input.shape))
    for axis, count in enumerate(counts):
        if count != 1:
            chosen = positions(input, input.shape[axis]).repeat(count)
            input = ops.take(input, chosen, axis)
    return input


@moment_rule(*named("repeat_interleave"))
def repeat_interleave(
    input: Value, repeats: Any, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    """Serve ``repeat_interleave``."""
    if dim is None:
        input, dim = ops.reshape(input, (on_meta(input).numel(),)), 0
    axis = checked_axis(dim, len(input.shape))
    chosen = positions(input, input.shape[axis]).repeat_interleave(repeats)
    return ops.take(input, chosen, axis)


@named_rule("index_copy")
def index_copy(input: Any, dim: int, index: torch.Tensor, source: Any) -> Value:
    """Serve ``index_copy`` at certain places."""
    ops.require_certain(index)
    on_meta(input).index_copy(dim, index.to("meta"), on_meta(source))
    axis = checked_axis(dim, len(input.shape))
    count = input.shape[axis]
    origin = torch.arange(count, device=index.device)
    others = torch.arange(count, count + len(index), device=index.device)
    return ops.with_rows(input, source, origin.index_copy(0, index, others), axis)


@named_rule("index_put")
def index_put(
    input: Any, indices: Sequence[torch.Tensor], values: Any, accumulate: bool = False
) -> Value:
    """Serve ``index_put`` of random values at certain places, or masks."""
    ops.require_certain(*indices)
    if accumulate:
        raise UnsupportedMoments(
            "index_put with accumulate=True of a random value",
            sites=errors.sites_of(input, values),
            remedy="sum groups by a product with a certain matrix of zeros and ones"
            + errors.OR_DRAW,
        )
    if len(indices) == 1 and indices[0].ndim == 1:
        rows = torch.arange(input.shape[0], device=indices[0].device)[indices[0]]
        return index_copy(input, 0, rows, ops.broadcast(values, (len(rows), *input.shape[1:])))
    size = math.prod(input.shape)
    positions = torch.arange(size, device=indices[0].device).reshape(tuple(input.shape))[*indices]
    parts = input, ops.broadcast(values, positions.shape)
    flat, others = (ops.reshape(part, (math.prod(part.shape),)) for part in parts)
    return ops.reshape(index_copy(flat, 0, positions.reshape(-1), others), tuple(input.shape))


@named_rule("masked_scatter")
def masked_scatter(input: Any, mask: torch.Tensor, source: Any) -> Value:
    """Serve ``masked_scatter`` with a certain mask."""
    ops.require_certain(mask)
    mask = mask.expand(tuple(input.shape))
    flat = ops.reshape(source, (math.prod(source.shape),))
    return index_put(input, (mask,), ops.take(flat, slice(0, int(mask.sum())), 0))
