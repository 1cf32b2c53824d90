"""Hide value-dependent functions from torch tracers behind a custom operation.

A tracer does not know array values. Such a function becomes one operation of the traced
graph, and another one for its gradient; the compiled graph calls both eagerly.
"""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import array_api_compat

from moment_calculus.numerics.private_apis import (
    autograd_inside_operation,
    is_transformed,
    is_untraced,
)

Array = Any

# Functions are compared by value and never freed, so they must not hold tensors.
_function_ids: dict[Callable[..., Array], int] = {}  # of all functions that graphs may call
_functions: list[Callable[..., Array]] = []  # by id
_saved_graphs: dict[int, tuple[Array, list[Array]]] = {}  # results and arguments by ticket
_ticket_ids = itertools.count()


def is_captured(*arrays: Array) -> bool:
    """Whether a tracer (not torch.func) is tracing a CPU program."""
    if not array_api_compat.is_torch_array(arrays[0]) or is_untraced() or is_transformed():
        return False
    return all(array.device.type == "cpu" for array in arrays)


def call_as_operation(function: Callable[..., Array], shape_source: int, *arrays: Array) -> Array:
    """Call a function as one torch operation with the shape of ``arrays[shape_source]``."""
    if function not in _function_ids:
        _function_ids[function] = len(_functions)
        _functions.append(function)
    return _operation()(_function_ids[function], shape_source, *arrays)


@functools.cache
def _operation() -> Callable[..., Array]:
    import torch

    operations = torch.ops.moment_calculus
    _library()

    class Operation(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, function_id: int, shape_source: int, *arrays: Array) -> Array:
            if not any(ctx.needs_input_grad):
                return operations.call(function_id, shape_source, arrays)
            result, ticket = operations.forward(function_id, shape_source, arrays)
            ctx.function_id = function_id
            ctx.save_for_backward(ticket, *arrays)
            return result

        @staticmethod
        def backward(ctx: Any, cotangent: Array) -> Any:
            ticket, *arrays = ctx.saved_tensors
            return None, None, *operations.backward(ctx.function_id, cotangent, arrays, ticket)

    return Operation.apply


@functools.cache
def _library() -> Any:
    """Register the torch operations and fake kernels; they last as long as the result."""
    import torch

    library = torch.library.Library("moment_calculus", "FRAGMENT")
    kernels = {"call": _call, "forward": _forward, "backward": _backward}
    fakes: dict[str, Any] = {
        "call": lambda function_id, shape_source, arrays: _fake_like(arrays[shape_source]),
        "forward": lambda function_id, shape_source, arrays: (
            _fake_like(arrays[shape_source]),
            torch.empty((), dtype=torch.int64, device="cpu"),
        ),
        "backward": lambda function_id, cotangent, arrays, ticket: list(map(_fake_like, arrays)),
    }
    library.define("call(int function, int shape_source, Tensor[] arrays) -> Tensor")
    library.define("forward(int function, int shape_source, Tensor[] arrays) -> (Tensor, Tensor)")
    library.define(
        "backward(int function, Tensor cotangent, Tensor[] arrays, Tensor ticket) -> Tensor[]"
    )
    for name, function in kernels.items():
        library.impl(name, function, "CPU")
        torch.library.register_fake(f"moment_calculus::{name}", fakes[name], lib=library)
    return library


def _fake_like(array: Array) -> Array:
    return array.new_empty(array.shape)


def _without_aliasing(result: Array, *inputs: Array) -> Array:
    """Return a contiguous result that shares no memory with the inputs."""
    result, memory = result.detach().contiguous(), result.untyped_storage().data_ptr()
    is_input = any(memory == array.untyped_storage().data_ptr() for array in inputs)
    return result.clone() if is_input else result


# The schema passes ``shape_source`` to the kernels, too; only the fake kernels need it.
def _call(function_id: int, shape_source: int, arrays: list[Array]) -> Array:
    return _without_aliasing(_functions[function_id](*arrays), *arrays)


def _forward(function_id: int, shape_source: int, arrays: list[Array]) -> tuple[Array, Array]:
    """Return the result, and a ticket that keeps the graph of the gradient alive."""
    import torch

    graph, ticket_id = _record_graph(function_id, arrays), next(_ticket_ids)
    _saved_graphs[ticket_id], ticket = graph, torch.tensor(ticket_id, device="cpu")
    # At exit the interpreter frees the graphs anyway, perhaps after torch is gone.
    weakref.finalize(ticket, _saved_graphs.pop, ticket_id, None).atexit = False
    return _without_aliasing(graph[0], *arrays), ticket


def _backward(
    function_id: int, cotangent: Array, arrays: list[Array], ticket: Array
) -> list[Array]:
    import torch

    ticket_id = int(ticket)
    if ticket_id in _saved_graphs:
        result, arguments = _saved_graphs.pop(ticket_id)
    else:  # a second backward finds no graph and records again
        result, arguments = _record_graph(function_id, arrays)
    with autograd_inside_operation():
        gradients = torch.autograd.grad(result, arguments, cotangent)
    return [_without_aliasing(gradient, cotangent, *arrays) for gradient in gradients]


def _record_graph(function_id: int, arrays: list[Array]) -> tuple[Array, list[Array]]:
    with autograd_inside_operation():
        arguments = [array.detach().requires_grad_() for array in arrays]
        return _functions[function_id](*arguments), arguments
