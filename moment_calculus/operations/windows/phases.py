"""Strided convolutions as sums of convolutions without strides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import is_jax_on_cpu


def by_phases(kernel: Callable[..., Array], layout: Any) -> Callable[..., Array]:
    """Return a kernel that in JAX, on a CPU, sums over the taps of each phase of its strides.

    XLA differentiates it by its inputs in a third of the time, since the terms have no strides.
    """
    axes = layout.spatial
    own, ones = [axis.stride for axis in axes], [1] * len(axes)
    if own == ones or any(axis.dilation > 1 for axis in axes):
        return kernel

    def convolved(inputs: Array, weight: Array, strides: Sequence[int] = own) -> Array:
        if strides is not own or not is_jax_on_cpu(inputs):
            return kernel(inputs, weight, strides)
        sizes = [weight.shape[axis.weight] for axis in axes]
        total: Any = 0.0
        for phase in itertools.product(*map(range, map(min, own, sizes))):
            seen, taps = [slice(None)] * inputs.ndim, [slice(None)] * weight.ndim
            for axis, first, size in zip(axes, phase, sizes, strict=True):
                count, step = (inputs.shape[axis.inputs] - size) // axis.stride, axis.stride
                last = first + (count + (size - 1 - first) // step) * step
                seen[axis.inputs] = slice(first, last + 1, step)
                taps[axis.weight] = slice(first, None, step)
            total = total + kernel(inputs[tuple(seen)], weight[tuple(taps)], ones)
        return total

    return convolved
