"""Rules of convolutions and of transposed convolutions, over one to three axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.conversion import positions
from pyro_moments.rules.shapes.moves import on_meta
from pyro_moments.rules.table import moment_rule, named
from pyro_moments.rules.windows.padding import pad_array, per_axis


def _convolved(
    input: Any, weight: Any, stride: Sequence[int], dilation: Sequence[int], groups: int
) -> Any:
    """Convolve padded inputs [n, channels, ...] with a weight [out, channels / groups, ...]."""
    count = len(stride)
    function = getattr(torch, f"conv{count}d")

    def kernel(
        inputs: torch.Tensor, weight: torch.Tensor, strides: Sequence[int] = stride
    ) -> torch.Tensor:
        return function(inputs, weight, None, strides, 0, dilation, groups)

    if not any(hasattr(operand, "sites") for operand in (input, weight)):
        return kernel(input, weight)
    axes = range(2, 2 + count)
    options = zip(axes, axes, axes, stride, dilation, strict=True)
    layout = ops.ConvolutionLayout(
        spatial=tuple(ops.SpatialAxis(*option) for option in options),
        batch=(0, 0),
        features=-1 - count,
        weight_features=0,
        groups=groups,
    )
    return ops.convolution(input, weight, kernel, layout)


def _with_batch(input: Any, count: int) -> tuple[Any, bool]:
    """Return inputs with an axis of data, and whether they had none."""
    single = len(input.shape) == count + 1
    return (ops.reshape(input, (1, *input.shape)) if single else input), single


def _with_bias(value: Any, bias: Any, count: int, single: bool) -> Value:
    if bias is not None:
        value = ops.add(value, ops.reshape(bias, (bias.shape[0],) + (1,) * count))
    return ops.reshape(value, tuple(value.shape[1:])) if single else value


def _paddings(padding: Any, sizes: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Return how many zeros torch puts before and after each axis."""
    if padding == "valid":
        return [(0, 0)] * len(sizes)
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(dilation, sizes, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(n, n) for n in per_axis(padding, len(sizes))]


def _forward(count: int) -> Any:
    def rule(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Value:
        meta = map(on_meta, (input, weight, bias))
        getattr(torch, f"conv{count}d")(*meta, stride, padding, dilation, groups)
        stride, dilation = per_axis(stride, count), per_axis(dilation, count)
        input, single = _with_batch(input, count)
        sides = _paddings(padding, weight.shape[2:], dilation)
        around = ops.padded(
            input, pad_array, [(0, 0, 0)] * 2 + [(low, high, 0) for low, high in sides]
        )
        return _with_bias(_convolved(around, weight, stride, dilation, groups), bias, count, single)

    rule.__doc__ = f"Serve ``F.conv{count}d`` and ``nn.Conv{count}d``."
    return rule


def _backward(count: int) -> Any:
    def rule(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Value:
        meta, function = map(on_meta, (input, weight, bias)), f"conv_transpose{count}d"
        getattr(torch, function)(*meta, stride, padding, output_padding, groups, dilation)
        options = (stride, padding, output_padding, dilation)
        stride, padding, more, dilation = (per_axis(option, count) for option in options)
        input, single = _with_batch(input, count)
        config = [(0, 0, 0)] * 2
        for axis, size in enumerate(weight.shape[2:]):
            low = dilation[axis] * (size - 1) - padding[axis]
            config.append((low, low + more[axis], stride[axis] - 1))
        turned, still = _turned(weight, groups), (1,) * count
        result = _convolved(ops.padded(input, pad_array, config), turned, still, dilation, groups)
        return _with_bias(result, bias, count, single)

    rule.__doc__ = f"Serve ``F.conv_transpose{count}d`` and ``nn.ConvTranspose{count}d``."
    return rule


def _turned(weight: Any, groups: int) -> Any:
    """Return the weight [in, out / groups, ...] of the convolution that a transposed one is."""
    size, outputs, *window = weight.shape
    split = ops.reshape(weight, (groups, size // groups, outputs, *window))
    swapped = ops.permute(split, (0, 2, 1, *range(3, len(split.shape))))
    result = ops.reshape(swapped, (groups * outputs, size // groups, *window))
    if not hasattr(weight, "sites"):
        return result.flip(tuple(range(2, 2 + len(window))))
    for axis, count in enumerate(window, start=2):
        from_end = {axis: positions(result, count).flip(0)}
        result = ops.move_axis(ops.index_axes(result, from_end, distinct=True), 0, axis)
    return result


for _count in (1, 2, 3):
    moment_rule(*named(f"conv{_count}d"))(_forward(_count))
    moment_rule(*named(f"conv_transpose{_count}d"))(_backward(_count))
