"""Rules of pools: means and largest entries of windows of one to three trailing axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from moment_calculus.numerics import constants
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from pyro_moments.rules.shapes.conversion import example_of, positions
from pyro_moments.rules.shapes.moves import on_meta
from pyro_moments.rules.table import RandomPlaces, moment_rule, named
from pyro_moments.rules.windows.padding import pad_array, per_axis

Sides = list[tuple[int, int]]  # entries before and after, along each axis


def sum_array(array: torch.Tensor, windows: ops.Windows) -> torch.Tensor:
    """Return the sums of a tensor over windows of its axes."""
    counts = windows.counts(array.shape)
    parts = zip(counts, windows.sizes, windows.strides, windows.dilations, strict=True)
    for axis, (count, size, stride, dilation) in enumerate(parts):
        if size == stride > 1 and dilation == 1:
            whole = array.narrow(axis, 0, count * size)
            array = whole.unflatten(axis, (count, size)).sum(axis + 1)
        elif size > 1 or stride > 1:
            lead, reach = (slice(None),) * axis, (count - 1) * stride + 1
            starts = range(0, size * dilation, dilation)
            entries = [array[(*lead, slice(i, i + reach, stride))] for i in starts]
            array = sum(entries[1:], entries[0])
    return array


def _windows(
    input: Value, result: torch.Tensor, size: Any, stride: Any, padding: Any, dilation: Any
) -> tuple[ops.Windows, Sides]:
    """Return the windows over all axes whose pool has the shape of the result, and the padding."""
    lead = (1,) * (len(input.shape) - len(size))
    windows = ops.Windows((*lead, *size), (*lead, *stride), (*lead, *dilation))
    sides = [(0, 0)] * len(lead)
    for axis, before in enumerate(padding, start=len(lead)):
        span = (windows.sizes[axis] - 1) * windows.dilations[axis] + 1
        end = (result.shape[axis] - 1) * windows.strides[axis] + span - before
        sides.append((before, max(before, end - input.shape[axis])))  # with ceil_mode
    return windows, sides


def _around(input: Value, sides: Sides) -> Value:
    return ops.padded(input, pad_array, [(before, after, 0) for before, after in sides])


def _averages(count: int) -> Callable:
    function: Any = getattr(F, f"avg_pool{count}d")

    def rule(
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        size, padding = per_axis(kernel_size, count), per_axis(padding, count)
        stride = per_axis(stride, count) if stride else size
        more = () if count == 1 else (divisor_override,)
        options = size, stride, padding, ceil_mode, count_include_pad, *more
        result = function(on_meta(input), *options)
        windows, sides = _windows(input, result, size, stride, padding, (1,) * count)
        total = ops.window_sum(_around(input, sides), windows, sum_array)
        margins = padding if count_include_pad else (0,) * count
        divisor = divisor_override or _entries(input, windows, sides[-count:], margins)
        return ops.scale_shift(total, constants(1 / divisor, example_of(input)))

    rule.__doc__ = f"Serve ``F.avg_pool{count}d`` and ``nn.AvgPool{count}d``."
    return rule


def _entries(input: Value, windows: ops.Windows, sides: Sides, margins: Sequence[int]) -> Any:
    """Return how many entries of each window are those of the input or of its margins."""
    lines, rank = [], len(input.shape)
    for axis, (before, after), margin in zip(
        range(rank - len(sides), rank), sides, margins, strict=True
    ):
        size, step = input.shape[axis], windows.strides[axis]
        count = (size + before + after - windows.sizes[axis]) // step + 1
        start = step * np.arange(count) - before
        end = np.minimum(start + windows.sizes[axis], size + margin)
        lines.append(end - np.maximum(start, -margin))
    number = float(math.prod(line[0] for line in lines))
    alike = all((line == line[0]).all() for line in lines)
    return number if alike else reduce(np.multiply.outer, lines)


def _largest(count: int, with_places: bool) -> Callable:
    function: Any = getattr(F, f"max_pool{count}d")

    def rule(
        input: Value,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = with_places,
    ) -> Any:
        size, padding = per_axis(kernel_size, count), per_axis(padding, count)
        stride, dilation = per_axis(stride, count) if stride else size, per_axis(dilation, count)
        result = function(on_meta(input), size, stride, padding, dilation, ceil_mode)
        windows, sides = _windows(input, result, size, stride, padding, dilation)
        return _beside_places(
            ops.window_maximum(_around(input, sides), windows, sides), with_places
        )

    rule.__doc__ = f"Serve ``F.max_pool{count}d`` and ``nn.MaxPool{count}d``" + (
        "; indices that are used are refused." if with_places else "."
    )
    return rule


def _beside_places(value: Value, with_places: bool) -> Any:
    return (value, RandomPlaces.of(value)) if with_places else value


def _in_bins(input: Any, counts: Sequence[int], pool: Callable) -> Value:
    """Pool the trailing axes into so many bins, whose sizes differ by one at most."""
    lead = len(input.shape) - len(counts)
    for index, count in enumerate(counts):
        size = input.shape[lead + index]
        if count > size and not count % size:
            input = ops.take(input, positions(input, count) * size // count, lead + index)
        elif size % count:
            bins = [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
            single = [*counts[:index], 1, *counts[index + 1 :]]
            parts = [_in_bins(ops.take(input, b, lead + index), single, pool) for b in bins]
            return ops.concatenate(parts, index - len(counts))
    sizes = (1,) * lead + tuple(
        n // count for n, count in zip(input.shape[lead:], counts, strict=True)
    )
    return pool(input, ops.Windows(sizes, sizes, (1,) * len(sizes)))


def _mean(input: Value, windows: ops.Windows) -> Value:
    return ops.scale_shift(ops.window_sum(input, windows, sum_array), 1 / math.prod(windows.sizes))


def _adaptive(count: int, kind: str, pool: Callable, with_places: bool = False) -> Callable:
    name = f"adaptive_{kind}_pool{count}d"

    def rule(input: Value, output_size: Any, return_indices: bool = with_places) -> Any:
        shape = getattr(F, name)(on_meta(input), output_size).shape
        return _beside_places(_in_bins(input, shape[len(shape) - count :], pool), with_places)

    rule.__doc__ = f"Serve ``F.{name}`` and ``nn.Adaptive{kind.title()}Pool{count}d``" + (
        "; indices that are used are refused." if with_places else "."
    )
    return rule


for _count in (1, 2, 3):
    moment_rule(*named(f"avg_pool{_count}d"))(_averages(_count))
    moment_rule(*named(f"max_pool{_count}d"))(_largest(_count, False))
    moment_rule(*named(f"max_pool{_count}d_with_indices"))(_largest(_count, True))
    moment_rule(*named(f"adaptive_avg_pool{_count}d"))(_adaptive(_count, "avg", _mean))
    _name = f"adaptive_max_pool{_count}d"
    moment_rule(*named(_name))(_adaptive(_count, "max", ops.window_maximum))
    moment_rule(*named(f"{_name}_with_indices"))(_adaptive(_count, "max", ops.window_maximum, True))
