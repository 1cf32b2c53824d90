"""Give functions derivatives in closed form, in place of those that a framework derives.

A framework is imported only when one of its arrays is passed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.private_apis import (
    has_forward_derivatives,
    is_traced,
    is_transformed,
    is_untraced,
)

# ---------------------------------------------------------------------------------------------
# Partial derivatives and tangents


Array = Any
Partials = Callable[..., Sequence[Sequence[Array]]]


def as_tuple(outputs: Any) -> tuple[Array, ...]:
    """Return the outputs of a function as a tuple, also if it returned a single array."""
    return outputs if isinstance(outputs, tuple) else (outputs,)


def directional(rows: Any, tangents: Sequence[Any]) -> list[Array]:
    """Return the directional derivative of each output; a tangent of None stands for zero."""
    return [
        sum([p * t for p, t in zip(row, tangents, strict=True) if t is not None]) for row in rows
    ]


# ----------------------------------------------------------------------------------------
# Whether arrays can be read


def executes_eagerly() -> bool:
    """Return whether torch executes operations one by one: no tracer, no torch.func."""
    return is_untraced() and not is_transformed()


def is_eager(*arrays: Array) -> bool:
    """Return whether a program runs step by step on a CPU, and not in JAX."""
    if not array_api_compat.is_torch_array(arrays[0]):
        return not array_api_compat.is_jax_array(arrays[0])
    # To read an array on a GPU would mean to wait for it.
    on_cpu = {array.device.type for array in arrays} == {"cpu"}
    return on_cpu and executes_eagerly() and not has_forward_derivatives()


def may_read(array: Array) -> bool:
    """Return whether a program may read an array: eager, or of JAX and not traced."""
    return not is_traced(array) if array_api_compat.is_jax_array(array) else is_eager(array)


# ---------------------------------------------------------------------------------------------
# JAX


def with_tangent(function: Callable[..., Array], tangent: Callable[..., Any]) -> Any:
    """Return a function whose (value, derivative) is ``tangent(arrays, directions)``.

    JAX traces it, and lowers it to XLA, once for all calls with arrays of equal shapes.
    """
    import jax

    wrapped = jax.custom_jvp(function)
    wrapped.defjvp(tangent)
    return jax.jit(wrapped)


def directional_derivative(function: Callable[..., Array]) -> Callable[..., Array]:
    """Return the directional derivative, a function of arrays and then directions."""
    import jax

    def derivative(*both: Array) -> Array:
        count = len(both) // 2
        return jax.jvp(function, both[:count], both[count:])[1]

    return derivative


def transposed(function: Callable[[Array], Array], like: Array, cotangent: Array) -> Array:
    """Return the transpose of a linear function of arrays such as ``like``, at a cotangent."""
    if array_api_compat.is_torch_array(like):
        import torch

        return torch.func.vjp(function, like)[1](cotangent)[0]
    import jax

    return jax.vjp(function, like)[1](cotangent)[0]


def transposed_each(function: Callable[[Array], Array], like: Array, cotangents: Array) -> Array:
    """Return the transpose of a linear function at cotangents [n, ...], each by itself."""
    if array_api_compat.is_torch_array(like):
        import torch

        pull = torch.func.vjp(function, like)[1]
        if len(cotangents) == 1:
            return pull(cotangents[0])[0][None]
        return torch.func.vmap(lambda cotangent: pull(cotangent)[0])(cotangents)
    import jax

    pull = jax.vjp(function, like)[1]
    return jax.vmap(lambda cotangent: pull(cotangent)[0])(cotangents)


def optimization_barrier(*arrays: Array) -> tuple[Array, ...]:
    """Return small arrays that XLA computes once, not anew for every use in large ones."""
    import jax

    return tuple(jax.lax.optimization_barrier(arrays))


def _jax_elementwise(function: Callable[..., Any], partials: Partials) -> Callable[..., Any]:
    import jax

    wrapped = jax.custom_jvp(lambda *arrays: function(*arrays))

    @wrapped.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        outputs = wrapped(*primals)
        slopes = _alike(directional(partials(*primals), tangents), as_tuple(outputs))
        return outputs, (slopes if isinstance(outputs, tuple) else slopes[0])

    return wrapped


def _alike(slopes: Sequence[Array], outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Bring arrays to the shapes and dtypes of others."""
    from jax.numpy import broadcast_to

    pairs = zip(slopes, outputs, strict=True)
    return tuple(broadcast_to(slope, like.shape).astype(like.dtype) for slope, like in pairs)


def _jax_joint(values_and_partials: Any, partials: Partials) -> Callable[..., Any]:
    """Give a function derivatives, computed together with its values."""
    import jax

    both = jax.custom_jvp(lambda *arrays: values_and_partials(*arrays))

    def tangents_of(slopes: Any, tangents: Any) -> list[Array]:
        count = len(tangents)
        rows = [slopes[i : i + count] for i in range(0, len(slopes), count)]
        return directional(rows, tangents)

    @both.defjvp
    def second_order(primals: Any, tangents: Any) -> Any:
        """Differentiate the partial derivatives themselves."""
        flat = lambda *arrays: [slope for row in partials(*arrays) for slope in row]  # noqa: E731
        slopes, bends = jax.jvp(flat, primals, tangents)
        outputs = both(*primals)
        return outputs, _alike([*tangents_of(slopes, tangents), *bends], outputs)

    @jax.custom_jvp
    def values(*arrays: Array) -> tuple[Array, ...]:
        outputs = both(*arrays)
        return tuple(outputs[: len(outputs) // (1 + len(arrays))])

    @values.defjvp
    def first_order(primals: Any, tangents: Any) -> Any:
        outputs = both(*primals)
        count = len(outputs) // (1 + len(primals))
        return tuple(outputs[:count]), _alike(
            tangents_of(outputs[count:], tangents), outputs[:count]
        )

    return values


# ---------------------------------------------------------------------------------------------
# Elementwise functions, on NumPy, torch and JAX arrays


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
        return (
            _jax_elementwise(function, partials)
            if values_and_partials is None
            else _jax_joint(values_and_partials, partials)
        )

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


def elementwise_of_statistics(
    statistics: Callable[..., tuple[Array, ...]], outputs: int, *, piece: int = PIECE * 8
) -> Callable[..., Any]:
    """Give the first outputs of a function the derivatives that follow row by row."""

    def function(*arrays: Array) -> Any:
        values = statistics(*arrays)[:outputs]
        return values if outputs > 1 else values[0]

    def partials(*arrays: Array) -> Any:
        slopes, count = statistics(*arrays)[outputs:], len(arrays)
        return [slopes[i : i + count] for i in range(0, len(slopes), count)]

    return elementwise(function, partials, values_and_partials=statistics, piece=piece)


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
        large = arrays[0].numel() > 2 * PIECE and _are_alike(arrays)
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
    for index, piece in enumerate(pieces):
        outputs = function(*piece)
        single = not isinstance(outputs, tuple)
        for i, output in enumerate(as_tuple(outputs)):
            if index == 0:
                results.append(output.new_empty(shape))
            results[i].view(-1)[index * size : index * size + len(output)] = output
    return results[0] if single else tuple(results)


def _may_be_cut(tensors: Sequence[Any], size: int) -> bool:
    """Return whether tensors are large, eager, on a CPU, and outside of any autograd graph."""
    import torch

    large = tensors[0].numel() > 2 * size and tensors[0].is_cpu
    return large and not torch.is_grad_enabled() and _are_alike(tensors)


def _are_alike(tensors: Sequence[Any]) -> bool:
    """Return whether torch executes eagerly, on contiguous tensors of one shape."""
    first = tensors[0]
    return executes_eagerly() and all(
        t is not None and t.shape == first.shape and t.is_contiguous() for t in tensors
    )


# ---------------------------------------------------------------------------------------------
# Gradients written by hand, of functions of eager arrays


Pullback = Callable[[Array], tuple[Array, ...]]


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
