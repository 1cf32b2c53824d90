"""Strided convolutions as sums of convolutions without strides."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.numerics.arrays import Array


def by_phases(kernel: Callable[..., Array], inputs: Array, weight: Array, layout: Any) -> Array:
    """Convolve; in JAX with a sum over the taps of each phase, which has a fast transpose.

    XLA transposes it in a third of the time on a CPU, since it has no strides.
    """
    axes = layout.spatial
    strides, ones = [axis.stride for axis in axes], [1] * len(axes)
    dilated = any(axis.dilation > 1 for axis in axes)
    if strides == ones or dilated or not array_api_compat.is_jax_array(inputs):
        return kernel(inputs, weight)
    sizes = [weight.shape[axis.weight] for axis in axes]
    total: Any = 0.0
    for phase in itertools.product(
        *(range(min(s, n)) for s, n in zip(strides, sizes, strict=True))
    ):
        seen, taps = [slice(None)] * inputs.ndim, [slice(None)] * weight.ndim
        for axis, first, size in zip(axes, phase, sizes, strict=True):
            count, step = (inputs.shape[axis.inputs] - size) // axis.stride, axis.stride
            last = first + (count + (size - 1 - first) // step) * step
            seen[axis.inputs], taps[axis.weight] = (
                slice(first, last + 1, step),
                slice(first, None, step),
            )
        total = total + kernel(inputs[tuple(seen)], weight[tuple(taps)], ones)
    return total
