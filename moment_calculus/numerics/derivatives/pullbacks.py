"""Give functions of eager arrays a gradient that is written by hand.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.partials import Array
from moment_calculus.numerics.derivatives.private_apis import (
    has_forward_derivatives,
    is_transformed,
    is_untraced,
)

Pullback = Callable[[Array], tuple[Array, ...]]


def is_eager(*arrays: Array) -> bool:
    """Return whether a program runs step by step on a CPU and may look at its arrays."""
    if not array_api_compat.is_torch_array(arrays[0]):
        return not array_api_compat.is_jax_array(arrays[0])
    # To look at an array on a GPU would mean to wait for it.
    return (
        is_untraced()
        and not is_transformed()
        and not has_forward_derivatives()
        and all(array.device.type == "cpu" for array in arrays)
    )


def with_pullback(
    function: Callable[..., tuple[Array, Pullback]], general: Callable[..., Array]
) -> Callable[..., Array]:
    """Give a function of eager arrays the gradient that its pullback computes.

    ``function`` returns the result and the pullback; neither is differentiated.
    ``general`` is the same function for automatic differentiation, where the gradient is
    differentiated itself.
    """

    def differentiable(*arrays: Array) -> Array:
        if array_api_compat.is_torch_array(arrays[0]):
            return _torch_function().apply(function, general, *arrays)
        return function(*arrays)[0]

    return differentiable


@functools.cache
def _torch_function() -> Any:
    import torch

    class WithPullback(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function: Any, general: Any, *arrays: Array) -> Array:
            result, ctx.pullback = function(*arrays)
            ctx.general = general
            ctx.save_for_backward(*arrays)
            return result

        @staticmethod
        def backward(ctx: Any, gradient: Array) -> tuple[Array | None, ...]:
            if torch.is_grad_enabled() or not is_eager(gradient):
                return None, None, *_differentiated(ctx.general, ctx.saved_tensors, gradient)
            return None, None, *ctx.pullback(gradient)

    return WithPullback


def _differentiated(general: Any, arrays: tuple[Array, ...], gradient: Array) -> tuple[Array, ...]:
    """Return the gradient of ``general``, differentiable, or for a batch of vmap's."""
    import torch

    with torch.enable_grad():  # for aliases, because one array may depend on another
        inputs = [
            part.view_as(part) if part.requires_grad else part.detach().requires_grad_()
            for part in arrays
        ]
        return torch.autograd.grad(general(*inputs), inputs, gradient, create_graph=True)
