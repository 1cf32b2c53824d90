"""Give elementwise functions closed-form derivatives, on NumPy, torch and JAX arrays.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives import in_jax
from moment_calculus.numerics.derivatives.partials import Array, Partials, as_tuple, directional
from moment_calculus.numerics.derivatives.private_apis import is_transformed, is_untraced

PIECE = 1 << 16  # elements: few enough for intermediate results to stay in the cache


def elementwise(
    function: Callable[..., Any],
    partials: Partials,
    *,
    values_and_partials: Callable[..., tuple[Array, ...]] | None = None,
    piece: int = PIECE * 8,
) -> Callable[..., Any]:
    """Give an elementwise function of k broadcastable arrays its derivatives in closed form.

    ``partials`` returns a row of k finite partial derivatives for each output; the result
    is differentiable as often as it is. ``values_and_partials``, if one computation is
    cheaper, returns the outputs and after them all partial derivatives, row by row.
    ``piece`` is the number of bytes of a large torch tensor that are computed together.
    """

    @functools.cache
    def for_torch() -> Callable[..., Any]:
        return _torch_elementwise(function, partials, piece)

    @functools.cache
    def for_torch_joint() -> Callable[..., Any]:
        return _torch_joint(function, values_and_partials, partials, piece)

    @functools.cache
    def for_jax() -> Callable[..., Any]:
        return in_jax.differentiable(function, partials, values_and_partials)

    @functools.wraps(function)
    def differentiable(*arrays: Array) -> Any:
        if any(array_api_compat.is_torch_array(array) for array in arrays):
            if values_and_partials is not None and not is_transformed():
                return _unpack_single(for_torch_joint()(*arrays))
            return for_torch()(*arrays)
        if any(array_api_compat.is_jax_array(array) for array in arrays):
            return _unpack_single(for_jax()(*arrays))
        return function(*arrays)

    return differentiable


def _unpack_single(outputs: Any) -> Any:
    """Unpack a tuple of one output."""
    return outputs[0] if isinstance(outputs, tuple) and len(outputs) == 1 else outputs


def _torch_elementwise(
    function: Callable[..., Any], partials: Partials, piece: int
) -> Callable[..., Any]:
    import torch

    class Elementwise(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*arrays: Array) -> Any:
            return _in_pieces(function, arrays, piece)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
            needed = ctx.needs_input_grad

            def pulled_back(*parts: Array) -> tuple[Array, ...]:
                arrays, slopes = parts[: len(needed)], parts[len(needed) :]
                columns = zip(*partials(*arrays), strict=True)
                return tuple(
                    directional([column], slopes)[0]
                    for column, wanted in zip(columns, needed, strict=True)
                    if wanted
                )

            arrays = ctx.saved_tensors
            results = iter(_in_pieces(pulled_back, (*arrays, *gradients), piece))
            return tuple(
                next(results).sum_to_size(array.shape) if wanted else None
                for array, wanted in zip(arrays, needed, strict=True)
            )

        @staticmethod
        def jvp(ctx: Any, *tangents: Array | None) -> Any:
            results = directional(partials(*ctx.saved_tensors), tangents)
            return results[0] if len(results) == 1 else tuple(results)

    # Without an explicit signature torch would inspect the function at every call.
    arrays = inspect.Parameter("arrays", inspect.Parameter.VAR_POSITIONAL)
    Elementwise.forward.__signature__ = inspect.Signature([arrays])  # type: ignore[attr-defined]
    return Elementwise.apply


def _torch_joint(
    function: Callable[..., Any], values_and_partials: Any, partials: Partials, piece: int
) -> Callable[..., Any]:
    """Do what :func:`_torch_elementwise` does; keep the partial derivatives for backward."""
    import torch

    class Joint(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arrays: Array) -> tuple[Array, ...]:
            ctx.save_for_forward(*arrays)
            if not any(ctx.needs_input_grad):
                return as_tuple(_in_pieces(function, arrays, piece))
            outputs = _in_pieces(values_and_partials, arrays, piece)
            count = len(outputs) // (1 + len(arrays))
            ctx.save_for_backward(*arrays, *outputs[count:])
            return outputs[:count]

        @staticmethod
        def backward(ctx: Any, *gradients: Array) -> tuple[Array | None, ...]:
            count = len(ctx.needs_input_grad)
            saved = ctx.saved_tensors  # torch.utils.checkpoint allows to read them only once
            arrays, slopes = saved[:count], saved[count:]
            if torch.is_grad_enabled():  # the gradient is to be differentiated itself
                slopes = [slope for row in partials(*arrays) for slope in row]
            return tuple(
                directional([slopes[i::count]], gradients)[0].sum_to_size(array.shape)
                if wanted
                else None
                for i, (array, wanted) in enumerate(zip(arrays, ctx.needs_input_grad, strict=True))
            )

        @staticmethod
        def jvp(ctx: Any, *tangents: Array | None) -> tuple[Array, ...]:
            return tuple(directional(partials(*ctx.saved_tensors), tangents))

    return Joint.apply


def with_checkpoint(function: Callable[..., Array]) -> Callable[..., Array]:
    """Recompute an elementwise function for its gradient if torch tensors are large."""

    @functools.cache
    def for_torch() -> Callable[..., Array]:
        return _torch_economical(function)

    @functools.wraps(function)
    def wrapped(*arrays: Array) -> Array:
        if not array_api_compat.is_torch_array(arrays[0]):
            return function(*arrays)
        large = arrays[0].numel() > 2 * PIECE and _are_plain(arrays)
        return for_torch()(*arrays) if large else function(*arrays)

    return wrapped


def _torch_economical(function: Callable[..., Array]) -> Callable[..., Array]:
    import torch

    def pulled_back(*parts: Array) -> tuple[Array, ...]:
        *arrays, slope = parts
        with torch.enable_grad():
            arrays = [array.detach().requires_grad_() for array in arrays]
            return torch.autograd.grad(function(*arrays), arrays, slope)

    class Economical(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arrays: Array) -> Array:
            ctx.save_for_backward(*arrays)
            return _in_pieces(function, arrays)

        @staticmethod
        def backward(ctx: Any, gradient: Array) -> tuple[Array, ...]:
            arrays = ctx.saved_tensors
            if torch.is_grad_enabled():  # the gradient is to be differentiated itself
                return torch.autograd.grad(function(*arrays), arrays, gradient, create_graph=True)
            return _in_pieces(pulled_back, (*arrays, gradient))

    return Economical.apply


def _in_pieces(function: Callable[..., Any], tensors: Sequence[Any], room: int = PIECE * 8) -> Any:
    """Apply an elementwise function to torch tensors, piece by piece if they are large."""
    shape, size = tensors[0].shape, min(room // tensors[0].element_size(), PIECE)
    if not _may_be_cut(tensors, size):
        return function(*tensors)
    results: list[Any] = []
    pieces = zip(*(tensor.view(-1).split(size) for tensor in tensors), strict=True)
    single = False
    for place, piece in enumerate(pieces):
        outputs = function(*piece)
        single = not isinstance(outputs, tuple)
        for i, output in enumerate(as_tuple(outputs)):
            if place == 0:
                results.append(output.new_empty(shape))
            results[i].view(-1)[place * size : place * size + len(output)] = output
    return results[0] if single else tuple(results)


def _may_be_cut(tensors: Sequence[Any], size: int) -> bool:
    """Return whether tensors are large, eager, and outside of any autograd graph."""
    import torch

    return tensors[0].numel() > 2 * size and not torch.is_grad_enabled() and _are_plain(tensors)


def _are_plain(tensors: Sequence[Any]) -> bool:
    """Return whether tensors are alike in shape, contiguous, and executed eagerly."""
    first = tensors[0]
    return (
        is_untraced()
        and not is_transformed()
        and all(t is not None and t.shape == first.shape and t.is_contiguous() for t in tensors)
    )


def may_branch(array: Array) -> bool:
    """Return whether a program may look at an array: not if traced, and not on a GPU."""
    if not array_api_compat.is_torch_array(array):
        return True
    return array.device.type == "cpu" and _are_plain([array])
