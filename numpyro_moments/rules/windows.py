"""Rules of convolutions, and of pooling and other reductions of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import lax

from moment_calculus import UnsupportedMoments, errors
from moment_calculus.numerics import private_apis
from moment_calculus.operations import catalogue as ops
from moment_calculus.values import Value
from numpyro_moments.rules.shapes.moves import pad_array
from numpyro_moments.rules.table import moment_rule, refused


@moment_rule("conv_general_dilated", numbers=False)
def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Any,
    feature_group_count: int,
    batch_group_count: int,
    precision: Any = None,
    preferred_element_type: Any = None,
    **_: Any,
) -> Value:
    """Serve every convolution of JAX, also transposed ones."""

    def kernel(inputs: Any, weight: Any, strides: Sequence[int] = window_strides) -> Any:
        return lax.conv_general_dilated(
            inputs,
            weight,
            tuple(map(int, strides)),
            [(0, 0)] * len(window_strides),
            rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers,
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )

    inputs, weight, outputs = dimension_numbers
    config = [(0, 0, 0)] * len(inputs)
    for axis, (low, high), dilation in zip(inputs[2:], padding, lhs_dilation, strict=True):
        config[axis] = (int(low), int(high), int(dilation) - 1)
    options = zip(inputs[2:], weight[2:], outputs[2:], window_strides, rhs_dilation, strict=True)
    layout = ops.ConvolutionLayout(
        spatial=tuple(ops.SpatialAxis(*map(int, option)) for option in options),
        batch=(inputs[0], outputs[0]) if batch_group_count == 1 else None,
        features=outputs[1] - len(outputs),
        weight_features=weight[0],
        groups=feature_group_count * batch_group_count,
    )
    return ops.convolution(ops.padded(lhs, pad_array, config), rhs, kernel, layout)


def _windows(sizes: Any, strides: Any, dilations: Any) -> ops.Windows:
    return ops.Windows(*(tuple(map(int, part)) for part in (sizes, strides, dilations)))


def _config(padding: Any, base_dilation: Any) -> list[tuple[int, int, int]]:
    return [
        (int(low), int(high), int(dilation) - 1)
        for (low, high), dilation in zip(padding, base_dilation, strict=True)
    ]


def sum_array(array: Any, windows: ops.Windows) -> Any:
    """Return the sums of an array over windows of its axes."""
    return lax.reduce_window(
        array,
        np.zeros((), array.dtype),
        lax.add,
        windows.sizes,
        windows.strides,
        "VALID",
        window_dilation=windows.dilations,
    )


@moment_rule("reduce_window_sum")
def reduce_window_sum(
    x: Value,
    *,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
    **_: Any,
) -> Value:
    """Serve ``flax.linen.avg_pool`` and ``jax.lax.reduce_window`` with ``jax.lax.add``."""
    windows = _windows(window_dimensions, window_strides, window_dilation)
    return ops.window_sum(
        ops.padded(x, pad_array, _config(padding, base_dilation)), windows, sum_array
    )


def _extreme(rule: Any, x: Value, options: Any) -> Value:
    windows = _windows(
        options["window_dimensions"], options["window_strides"], options["window_dilation"]
    )
    config = _config(options["padding"], options["base_dilation"])
    if any(between for _, _, between in config):
        raise UnsupportedMoments(
            f"the largest or smallest entries of windows with base_dilation="
            f"{tuple(options['base_dilation'])}",
            sites=x.sites,
            remedy="leave base_dilation= out" + errors.OR_DRAW,
        )
    outside = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    return rule(ops.padded(x, pad_array, config), windows, outside)


@moment_rule("reduce_window_max")
def reduce_window_max(x: Value, **options: Any) -> Value:
    """Serve ``flax.linen.max_pool`` and ``jax.lax.reduce_window`` with ``jax.lax.max``."""
    return _extreme(ops.window_maximum, x, options)


@moment_rule("reduce_window_min")
def reduce_window_min(x: Value, **options: Any) -> Value:
    """Serve ``flax.linen.min_pool`` and ``jax.lax.reduce_window`` with ``jax.lax.min``."""
    return _extreme(ops.window_minimum, x, options)


@moment_rule("reduce_window")
def reduce_window(x: Value, initial: Any, *rest: Any, jaxpr: Any, **options: Any) -> list[Value]:
    """Serve ``jax.lax.reduce_window`` with an initial number other than the neutral one."""
    names = [equation.primitive.name for equation in jaxpr.eqns]
    known = not rest and not hasattr(initial, "sites") and not private_apis.is_traced(initial)
    if names not in (["add"], ["max"], ["min"]) or not known or not np.isfinite(initial):
        raise UnsupportedMoments(
            f"a reduction of windows by {', '.join(names) or 'nothing'}",
            sites=errors.sites_of(x, initial, *rest),
            remedy="reduce by jax.lax.add, jax.lax.max or jax.lax.min, from a certain number"
            + errors.OR_DRAW,
        )
    config = _config(options.pop("padding"), options["base_dilation"])
    inside = ops.pad(x, pad_array, config, initial)
    still = {"padding": [(0, 0)] * len(config), "base_dilation": (1,) * len(config)}
    rule, combine = {
        "add": (reduce_window_sum, ops.add),
        "max": (reduce_window_max, ops.maximum),
        "min": (reduce_window_min, ops.minimum),
    }[names[0]]
    return [combine(rule(inside, **{**options, **still}), initial)]


REMEDY = (
    "take derivatives of the moments, outside of the model, instead of derivatives inside of it"
)
REFUSED = {
    "select_and_gather_add": "the derivative of a pool",
    "select_and_scatter": "a choice of entries of windows",
    "select_and_scatter_add": "the derivative of a pool",
}


for _primitive, _what in REFUSED.items():
    refused(_primitive, f"{_what}, as a function of random values", REMEDY)
