"""Rule of convolutions of every kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax import lax

from moment_calculus.operations.windows.convolution import (
    ConvolutionLayout,
    SpatialAxis,
    convolution,
)
from moment_calculus.values import Value
from numpyro_moments.rules.shapes.padding import padded
from numpyro_moments.rules.table import moment_rule


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

    def kernel(inputs: Any, weight: Any) -> Any:
        return lax.conv_general_dilated(
            inputs,
            weight,
            window_strides,
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
    places = zip(inputs[2:], weight[2:], outputs[2:], window_strides, rhs_dilation, strict=True)
    layout = ConvolutionLayout(
        spatial=tuple(SpatialAxis(*map(int, place)) for place in places),
        batch=(inputs[0], outputs[0]) if batch_group_count == 1 else None,
        features=outputs[1] - len(outputs),
        weight_features=weight[0],
        groups=feature_group_count * batch_group_count,
    )
    return convolution(padded(lhs, config), rhs, kernel, layout)
