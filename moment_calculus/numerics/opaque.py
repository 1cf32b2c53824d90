"""Let a program that torch traces call functions that branch on the values of arrays.

A tracer does not know these values. Such a function becomes one operation of the traced
graph, and another one for its gradient; the compiled program calls both eagerly.
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

# Functions are compared by value, kept for ever, and must therefore hold no tensors.
_functions: dict[Callable[..., Array], int] = {}  # numbers of all functions that graphs may call
_graphs: dict[int, tuple[Array, list[Array]]] = {}  # results and arguments by ticket
_tickets = itertools.count()


def is_captured(*arrays: Array) -> bool:
    """Return whether a tracer, and not torch.func, is watching a torch program on a CPU."""
    if not array_api_compat.is_torch_array(arrays[0]) or is_untraced() or is_transformed():
        return False
    return all(array.device.type == "cpu" for array in arrays)


def call_as_operation(function: Callable[..., Array], like: int, *arrays: Array) -> Array:
    """Call a function as one torch operation with the shape of ``arrays[like]``."""
    return _operation()(_functions.setdefault(function, len(_functions)), like, *arrays)


@functools.cache
def _operation() -> Callable[..., Array]:
    import torch

    operations = torch.ops.moment_calculus
    _library()

    class Operation(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, number: int, like: int, *arrays: Array) -> Array:
            if not any(ctx.needs_input_grad):
                return operations.call(number, like, arrays)
            result, ticket = operations.start(number, like, arrays)
            ctx.number = number
            ctx.save_for_backward(ticket, *arrays)
            return result

        @staticmethod
        def backward(ctx: Any, slope: Array) -> Any:
            ticket, *arrays = ctx.saved_tensors
            return None, None, *operations.pull_back(ctx.number, slope, arrays, ticket)

    return Operation.apply


@functools.cache
def _library() -> Any:
    """Register the torch operations and their shape functions while it lives."""
    import torch

    library = torch.library.Library("moment_calculus", "FRAGMENT")
    kernels = {"call": _call, "start": _start, "pull_back": _pull_back}
    fakes: dict[str, Any] = {
        "call": lambda number, like, arrays: _fake_like(arrays[like]),
        "start": lambda number, like, arrays: (
            _fake_like(arrays[like]),
            torch.empty((), dtype=torch.int64),
        ),
        "pull_back": lambda number, slope, arrays, ticket: list(map(_fake_like, arrays)),
    }
    library.define("call(int function, int like, Tensor[] arrays) -> Tensor")
    library.define("start(int function, int like, Tensor[] arrays) -> (Tensor, Tensor)")
    library.define(
        "pull_back(int function, Tensor slope, Tensor[] arrays, Tensor ticket) -> Tensor[]"
    )
    for name, function in kernels.items():
        library.impl(name, function, "CPU")
        torch.library.register_fake(f"moment_calculus::{name}", fakes[name], lib=library)
    return library


def _function(number: int) -> Callable[..., Array]:
    return list(_functions)[number]


def _fake_like(array: Array) -> Array:
    return array.new_empty(array.shape)


def _unaliased(array: Array, *given: Array) -> Array:
    """Return a contiguous result that shares no memory with the arguments."""
    array, memory = array.detach().contiguous(), array.untyped_storage().data_ptr()
    is_given = any(memory == part.untyped_storage().data_ptr() for part in given)
    return array.clone() if is_given else array


def _call(number: int, like: int, arrays: list[Array]) -> Array:
    return _unaliased(_function(number)(*arrays), *arrays)


def _start(number: int, like: int, arrays: list[Array]) -> tuple[Array, Array]:
    """Return the result, and a ticket that keeps the graph of the gradient alive."""
    import torch

    graph, place = _recorded(number, arrays), next(_tickets)
    _graphs[place], ticket = graph, torch.tensor(place)
    weakref.finalize(ticket, _graphs.pop, place, None).atexit = False
    return _unaliased(graph[0], *arrays), ticket


def _pull_back(number: int, slope: Array, arrays: list[Array], ticket: Array) -> list[Array]:
    import torch

    place = int(ticket)
    result, arguments = _graphs.pop(place) if place in _graphs else _recorded(number, arrays)
    with autograd_inside_operation():
        gradients = torch.autograd.grad(result, arguments, slope)
    return [_unaliased(gradient, slope, *arrays) for gradient in gradients]


def _recorded(number: int, arrays: list[Array]) -> tuple[Array, list[Array]]:
    with autograd_inside_operation():
        arguments = [array.detach().requires_grad_() for array in arrays]
        return _function(number)(*arguments), arguments
