"""Derivatives by the weight of a convolution for each datum, by matrices of patches."""

from __future__ import annotations

import itertools
import math
from typing import Any

from moment_calculus.numerics.arrays import Array, namespace


def derivatives_by_weight(
    inputs: Array, cotangent: Array, shape: tuple[int, ...], layout: Any
) -> Array:
    """Return Σ_p δ_p x_p of each datum, [n, rows, *weight], for cotangents [n, *outputs].

    One product of matrices for each datum and group takes the place of a convolution of
    each datum with its cotangents, which frameworks compute slowly.
    """
    xp, groups = namespace(cotangent), layout.groups
    patches = _patches(inputs, shape, layout)  # [rows, channels, taps, positions]
    rows, _, taps, positions = patches.shape
    order = [layout.batch[1] + 1, 0, cotangent.ndim + layout.features]
    order += [axis.outputs + 1 for axis in layout.spatial]
    moved = xp.permute_dims(cotangent, tuple(order))
    count, outputs = moved.shape[1], moved.shape[2] // groups
    split = xp.reshape(moved, (rows, count, groups, outputs, positions))
    left = xp.reshape(
        xp.permute_dims(split, (0, 2, 1, 3, 4)), (rows, groups, count * outputs, positions)
    )
    right = xp.reshape(patches, (rows, groups, -1, positions))
    product = xp.reshape(left @ right.mT, (rows, groups, count, outputs, -1, taps))
    product = xp.permute_dims(product, (2, 0, 1, 3, 4, 5))
    sizes = [shape[axis.weight] for axis in layout.spatial]
    wide = xp.reshape(product, (count, rows, groups * outputs, -1, *sizes))
    return xp.permute_dims(
        wide, (0, 1, *(2 + dimension for dimension in _weight_order(shape, layout)))
    )


def _weight_order(shape: tuple[int, ...], layout: Any) -> list[int]:
    """Return for each axis of the weight its place in [outputs, channels, *space]."""
    spatial = [axis.weight for axis in layout.spatial]
    dimensions = {layout.weight_features: 0} | {axis: 2 + i for i, axis in enumerate(spatial)}
    return [dimensions.get(axis, 1) for axis in range(len(shape))]


def _patches(inputs: Array, shape: tuple[int, ...], layout: Any) -> Array:
    """Return what each output sees of the inputs, [rows, channels, taps, positions]."""
    xp, axes = namespace(inputs), layout.spatial
    space = [axis.inputs for axis in axes]
    (channel,) = {*range(inputs.ndim)} - {layout.batch[0], *space}
    x = xp.permute_dims(inputs, (layout.batch[0], channel, *space))
    sizes = [shape[axis.weight] for axis in axes]
    parts = []
    for taps in itertools.product(*map(range, sizes)):
        cut: list[Any] = [slice(None), slice(None)]
        for axis, tap, size, length in zip(axes, taps, sizes, x.shape[2:], strict=True):
            count = (length - axis.dilation * (size - 1) - 1) // axis.stride + 1
            start = tap * axis.dilation
            cut.append(slice(start, start + (count - 1) * axis.stride + 1, axis.stride))
        parts.append(x[tuple(cut)])
    stacked = xp.stack(parts, axis=2)
    return xp.reshape(stacked, (*stacked.shape[:3], math.prod(stacked.shape[3:])))
