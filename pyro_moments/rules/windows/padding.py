"""Rules of padding, patches and resizing, which move elements along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.conversion import example_of, positions
from pyro_moments.rules.shapes.moves import checked_axis, on_meta
from pyro_moments.rules.table import moment_rule, named


def per_axis(option: Any, count: int) -> tuple[int, ...]:
    """Return an option for each of several axes, as torch takes it: one number, or a sequence."""
    options = tuple(option) if isinstance(option, Sequence) else (option,)
    return tuple(map(int, options * count if len(options) == 1 else options))


def pad_array(array: torch.Tensor, config: ops.Config, fill: float) -> torch.Tensor:
    """Pad a tensor with entries before, after and between, by axis in ``config``."""
    sides: list[int] = []
    for axis, (low, high, between) in enumerate(config):
        if between:
            array = _insert_between(array, axis, between, fill)
        sides = [low, high, *sides]
    return F.pad(array, sides, value=fill)


def _insert_between(array: torch.Tensor, axis: int, between: int, fill: float) -> torch.Tensor:
    """Put entries between those along an axis."""
    size = array.shape[axis]
    behind = [0, 0] * (array.ndim - axis - 1)
    wide = F.pad(array.unsqueeze(axis + 1), [*behind, 0, between], value=fill)
    return wide.flatten(axis, axis + 1).narrow(axis, 0, (size - 1) * (between + 1) + 1)


@moment_rule(*named("pad", "constant_pad_nd"))
def pad(input: Value, pad: Sequence[int], mode: Any = "constant", value: Any = None) -> Value:
    """Serve ``F.pad`` in all modes, and the modules for padding."""
    if not isinstance(mode, str):  # the number of torch.constant_pad_nd
        mode, value = "constant", mode
    F.pad(on_meta(input), pad, mode)
    rank, sides = len(input.shape), list(zip(pad[::2], pad[1::2], strict=True))
    config = [(0, 0, 0)] * (rank - len(sides)) + [(low, high, 0) for low, high in sides[::-1]]
    if mode == "constant":
        return ops.pad(input, pad_array, config, 0.0 if value is None else value)
    for axis, (low, high, _) in enumerate(config):
        if low or high:
            input = ops.take(input, _source_indices(input, axis, low, high, mode), axis)
    return input


def _source_indices(input: Value, axis: int, low: int, high: int, mode: str) -> torch.Tensor:
    """Return the index of the entry that each entry of the padded axis repeats."""
    size = input.shape[axis]
    indices = positions(input, low + size + high) - low
    if mode == "circular":
        return indices % size
    if mode == "replicate":
        return indices.clamp(0, size - 1)
    return size - 1 - (size - 1 - indices.abs()).abs()


def _split_into_patches(
    input: Value, axis: int, size: int, step: int = 1, dilation: int = 1
) -> Value:
    """Split an axis into two: the position of an entry in its patch, and the patches."""
    shape = tuple(input.shape)
    count = (shape[axis] - (size - 1) * dilation - 1) // step + 1
    chosen = dilation * positions(input, size)[:, None] + step * positions(input, count)
    parts = ops.take(input, chosen.reshape(-1), axis)
    return ops.reshape(parts, (*shape[:axis], size, count, *shape[axis + 1 :]))


@moment_rule(F.unfold)
def patches(
    input: Value, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Value:
    """Serve ``F.unfold`` and ``nn.Unfold``."""
    result = F.unfold(on_meta(input), kernel_size, dilation, padding, stride)
    (height, width), (low, left) = per_axis(kernel_size, 2), per_axis(padding, 2)
    (rows, columns), (down, right) = per_axis(dilation, 2), per_axis(stride, 2)
    lead = len(input.shape) - 2
    around = ops.padded(input, pad_array, [(0, 0, 0)] * lead + [(low, low, 0), (left, left, 0)])
    split = _split_into_patches(around, lead + 1, width, right, columns)
    split = _split_into_patches(split, lead, height, down, rows)
    order = (*range(lead), lead, lead + 2, lead + 1, lead + 3)
    return ops.reshape(ops.permute(split, order), tuple(result.shape))


@moment_rule(torch.Tensor.unfold)
def unfold(input: Value, dimension: int, size: int, step: int) -> Value:
    """Serve ``Tensor.unfold``."""
    on_meta(input).unfold(dimension, size, step)
    axis = checked_axis(dimension, len(input.shape))
    return ops.move_axis(_split_into_patches(input, axis, size, step), axis, len(input.shape))


@moment_rule(F.interpolate)
def interpolate(
    input: Value,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Value:
    """Serve ``F.interpolate`` and ``nn.Upsample`` with the nearest entry; refuse other modes."""
    if mode not in ("nearest", "nearest-exact"):
        raise UnsupportedMoments(
            f"a resizing with mode={mode!r}",
            sites=input.sites,
            remedy="use mode='nearest', or a transposed convolution with certain weights"
            + errors.OR_DRAW,
        )
    count, device = len(input.shape) - 2, example_of(input).device
    sizes, factors = _option_by_axis(size, count), _option_by_axis(scale_factor, count)
    for axis, (to, by) in enumerate(zip(sizes, factors, strict=True), start=2):
        line = torch.arange(input.shape[axis], dtype=torch.float64, device=device)[None, None]
        nearest = F.interpolate(line, to, by, mode, align_corners, recompute_scale_factor)
        input = ops.take(input, nearest[0, 0].long(), axis)
    return input


def _option_by_axis(option: Any, count: int) -> list[Any]:
    return list(option) if isinstance(option, Sequence) else [option] * count


@moment_rule(*named("pixel_shuffle"))
def pixel_shuffle(input: Value, upscale_factor: int) -> Value:
    """Serve ``F.pixel_shuffle`` and ``nn.PixelShuffle``."""
    result = F.pixel_shuffle(on_meta(input), upscale_factor)
    *lead, _, height, width = input.shape
    by, rank = upscale_factor, len(lead)
    split = ops.reshape(input, (*lead, result.shape[-3], by, by, height, width))
    order = (*range(rank), rank, rank + 3, rank + 1, rank + 4, rank + 2)
    return ops.reshape(ops.permute(split, order), tuple(result.shape))


@moment_rule(*named("pixel_unshuffle"))
def pixel_unshuffle(input: Value, downscale_factor: int) -> Value:
    """Serve ``F.pixel_unshuffle`` and ``nn.PixelUnshuffle``."""
    result = F.pixel_unshuffle(on_meta(input), downscale_factor)
    *lead, channels, _, _ = input.shape
    by, rank, (height, width) = downscale_factor, len(lead), result.shape[-2:]
    split = ops.reshape(input, (*lead, channels, height, by, width, by))
    order = (*range(rank), rank, rank + 2, rank + 4, rank + 1, rank + 3)
    return ops.reshape(ops.permute(split, order), tuple(result.shape))
