"""Strided convolutions as sums of convolutions without strides."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.arrays import Array


def by_phases(kernel: Callable[..., Array], layout: Any) -> Callable[..., Array]:
    """Return a kernel that in JAX, on a CPU, sums over the taps of each phase of its strides.

    XLA differentiates it by its inputs in a third of the time, since the terms have no strides.
    """
    axes = layout.spatial
    own, ones = [axis.stride for axis in axes], [1] * len(axes)
    if own == ones or any(axis.dilation > 1 for axis in axes):
        return kernel

    def convolved(inputs: Array, weight: Array, strides: Sequence[int] = own) -> Array:
        if strides is not own or not _for_xla_on_cpu(inputs):
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


def _for_xla_on_cpu(array: Array) -> bool:
    if not array_api_compat.is_jax_array(array):
        return False
    import jax

    return jax.default_backend() == "cpu"
