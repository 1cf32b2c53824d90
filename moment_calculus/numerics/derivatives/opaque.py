"""Functions that a captured program calls as they are, with a look at its numbers.

What is traced cannot choose by the numbers in an array. A function that does is one operation of
the graph instead, and one more for its gradient, which the compiled program calls eagerly.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import array_api_compat

from moment_calculus.numerics.derivatives.elementwise import is_transformed, is_untraced

Array = Any

_functions: dict[Callable[..., Array], int] = {}  # all that graphs may call
_kept: dict[int, tuple[Array, list[Array]]] = {}  # results and arguments, by their tickets
_tickets = itertools.count()


def is_captured(*arrays: Array) -> bool:
    """Whether a program of torch on a CPU is watched, as by a tracer.

    Args:
        arrays: of one framework.
    """
    if not array_api_compat.is_torch_array(arrays[0]) or is_untraced() or is_transformed():
        return False
    return all(array.device.type == "cpu" for array in arrays)


def as_one_operation(function: Callable[..., Array], like: int, *arrays: Array) -> Array:
    """Call a function of torch tensors as one operation, which is differentiable once.

    Args:
        function: compared by its value; keeps no tensors.
        like: which of the arrays the result has the shape and the precision of.
        arrays: its arguments.
    """
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
    """Operations of torch, with the shapes of what they return; they end with it."""
    import torch

    library = torch.library.Library("moment_calculus", "FRAGMENT")
    serving = {"call": _call, "start": _start, "pull_back": _pull_back}
    imitating = {
        "call": lambda number, like, arrays: _imitated(arrays[like]),
        "start": lambda number, like, arrays: (
            _imitated(arrays[like]),
            torch.empty((), dtype=torch.int64),
        ),
        "pull_back": lambda number, slope, arrays, ticket: list(map(_imitated, arrays)),
    }
    library.define("call(int function, int like, Tensor[] arrays) -> Tensor")
    library.define("start(int function, int like, Tensor[] arrays) -> (Tensor, Tensor)")
    library.define(
        "pull_back(int function, Tensor slope, Tensor[] arrays, Tensor ticket) -> Tensor[]"
    )
    for name, function in serving.items():
        library.impl(name, function, "CPU")
        library._register_fake(name, imitating[name])
    return library


def _function(number: int) -> Callable[..., Array]:
    return list(_functions)[number]


def _imitated(array: Array) -> Array:
    return array.new_empty(array.shape)


def _own(array: Array, *given: Array) -> Array:
    """A result in the layout that was promised, which shares no memory with what was given."""
    array, memory = array.detach().contiguous(), array.untyped_storage().data_ptr()
    is_given = any(memory == part.untyped_storage().data_ptr() for part in given)
    return array.clone() if is_given else array


def _call(number: int, like: int, arrays: list[Array]) -> Array:
    return _own(_function(number)(*arrays), *arrays)


def _start(number: int, like: int, arrays: list[Array]) -> tuple[Array, Array]:
    """The result, and a ticket for its graph, which is kept as long as the ticket is."""
    import torch

    found, place = _recorded(number, arrays), next(_tickets)
    _kept[place], ticket = found, torch.tensor(place)
    weakref.finalize(ticket, _kept.pop, place, None).atexit = False
    return _own(found[0], *arrays), ticket


def _pull_back(number: int, slope: Array, arrays: list[Array], ticket: Array) -> list[Array]:
    import torch

    place = int(ticket)
    result, arguments = _kept.pop(place) if place in _kept else _recorded(number, arrays)
    with _recording():
        gradients = torch.autograd.grad(result, arguments, slope)
    return [_own(gradient, slope, *arrays) for gradient in gradients]


def _recorded(number: int, arrays: list[Array]) -> tuple[Array, list[Array]]:
    with _recording():
        arguments = [array.detach().requires_grad_() for array in arrays]
        return _function(number)(*arguments), arguments


@contextlib.contextmanager
def _recording() -> Iterator[None]:
    """Autograd at work, which tracers and operations leave out within themselves."""
    import torch

    include = torch._C._dispatch_tls_local_include_set()
    exclude = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradFunctionality", "ADInplaceOrView"):
        exclude = exclude.remove(getattr(torch._C.DispatchKey, key))
    with torch._C._ForceDispatchKeyGuard(include, exclude), torch.enable_grad():
        yield
