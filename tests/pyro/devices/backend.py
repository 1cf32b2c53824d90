"""A second device without hardware: its tensors hold real numbers on the CPU.

torch reserves the device type ``PrivateUse1`` for backends outside of it. This one, ``lent``,
computes by the CPU's kernels, so that results are equal, and refuses operations that mix its
tensors with those of the CPU. One number on the CPU may be mixed, as with CUDA. It cannot see
which kernels another device lacks, how it rounds, nor the order of its work.

Importing this module changes torch for the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "lent"
_setup_privateuseone_for_python_backend(NAME)
HERE, CPU = torch.device(NAME, 0), torch.device("cpu")
ATEN = torch.ops.aten
# Operations that make tensors from numbers alone.
FACTORIES = (
    *(ATEN.empty.memory_format, ATEN.empty_strided.default),
    *(ATEN.arange.default, ATEN.arange.start, ATEN.arange.start_step),
    *(ATEN.eye.default, ATEN.eye.m, ATEN.randperm.default),
    *(ATEN.tril_indices.default, ATEN.triu_indices.default),
)


class Lent(torch.Tensor):
    """A tensor on the second device; ``numbers`` is its content."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> Lent:
        """Make the tensor; it shares the content."""
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            dtype=numbers.dtype,
            device=HERE,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
        )
        made.numbers = numbers
        return made

    @property
    def data(self) -> Lent:
        """The content without its history; it may be set."""
        return self.detach()

    @data.setter
    def data(self, other: Lent) -> None:
        _check("set_data", [other])
        if (other.shape, other.dtype) != (self.shape, self.dtype):
            raise NotImplementedError("data of another shape or dtype are not served")
        self.numbers = other.numbers

    def as_subclass(self, cls: Any) -> Any:
        """Make the shell of a class whose operations go to this tensor, as Pyro's provenance."""
        return self.numbers.detach().as_subclass(cls)

    def tolist(self) -> Any:
        """Copy the content to Python, as tensors of any device do."""
        return self.numbers.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute an operation on the CPU."""
        kwargs = dict(kwargs or {})
        inputs = [*_tensors(args), *_tensors(kwargs.values())]
        if func is not ATEN.copy_.default:
            _check(func, inputs)
        device = torch.device(kwargs.get("device") or HERE)
        if device.type == NAME and "device" in kwargs:
            kwargs["device"] = CPU
        named = {name: _each(_numbers, part) for name, part in kwargs.items()}
        results = func(*_each(_numbers, args), **named)
        if device.type != NAME:
            return results
        if torch.Tag.inplace_view in func.tags:
            with torch._C._DisableTorchDispatch():
                func(*args, **kwargs)  # changes the shape of the tensor itself
            return args[0]
        known = {id(part.numbers): part for part in inputs if isinstance(part, Lent)}
        return _each(lambda part: _lent(func, part, known), results)


def _tensors(parts: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The tensors among arguments of an operation, which are in lists at most."""
    for part in parts:
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, list | tuple):
            yield from _tensors(part)


def _each(change: Callable[[Any], Any], part: Any) -> Any:
    """A part with all its members changed: much faster than torch's walk through containers."""
    if isinstance(part, list | tuple):
        return type(part)([_each(change, member) for member in part])
    return change(part)


def _check(func: Any, inputs: list[torch.Tensor]) -> None:
    """Raise RuntimeError if an operation mixes devices."""
    takes_a_number = torch.Tag.pointwise in getattr(func, "tags", ())
    for part in inputs:
        if not isinstance(part, Lent) and (part.dim() > 0 or not takes_a_number):
            raise RuntimeError(
                f"{func}: a tensor of shape {tuple(part.shape)} is on {part.device}, and another "
                f"on {HERE}"
            )


def _numbers(part: Any) -> Any:
    return part.numbers if isinstance(part, Lent) else part


def _lent(func: Any, part: Any, known: dict[int, Lent]) -> Any:
    """Return a result on the device; what changed in place is the tensor that it was."""
    if not isinstance(part, torch.Tensor):
        return part
    if id(part) not in known:
        return Lent(part)
    same = known[id(part)]
    if same.shape != part.shape:
        raise NotImplementedError(f"{func}: operations that resize are not served")
    return same


def _register(library: torch.library.Library) -> None:
    """Say how tensors are made on the device, and copied to and from it."""
    for factory in FACTORIES:

        def make(*args: Any, factory: Any = factory, device: Any = None, **kwargs: Any) -> Lent:
            kwargs.pop("pin_memory", None)
            return Lent(factory(*args, device=CPU, **kwargs))

        name = factory._schema.name.removeprefix("aten::")
        overload = factory._schema.overload_name
        library.impl(f"{name}.{overload}" if overload else name, make, "PrivateUse1")

    def no_tangent(size: Any, **options: Any) -> Lent:
        return Lent(torch.zeros(size, dtype=options.get("dtype")))

    library.impl("_efficientzerotensor", no_tangent, "PrivateUse1")

    def copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
        _numbers(target).copy_(_numbers(source))
        return target

    library.impl("_copy_from", copy, "PrivateUse1")


LIBRARY = torch.library.Library("aten", "IMPL")  # it serves as long as it exists
_register(LIBRARY)
