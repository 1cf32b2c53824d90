"""A second device without hardware: its tensors hold real numbers on the CPU.

torch reserves the device type ``PrivateUse1`` for backends outside of it. This one, ``lent``,
computes by the CPU's kernels, so that results are equal, and refuses operations that mix its
tensors with those of the CPU. One number on the CPU may be mixed, as with CUDA. It cannot see
which kernels another device lacks, how it rounds, nor the order of its work.

Importing this module changes torch for the whole process.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        inputs: list[torch.Tensor] = []
        parts = _content(args, inputs)
        named = dict(zip(kwargs, _content(kwargs.values(), inputs), strict=True)) if kwargs else {}
        if func is not ATEN.copy_.default:
            _check(func, inputs)
        is_kept = True
        if (device := named.get("device")) is not None:
            is_kept = torch.device(device).type == NAME
            named["device"] = CPU if is_kept else device
        results = func(*parts, **named)
        if not is_kept:
            return results
        if torch.Tag.inplace_view in func.tags:
            with torch._C._DisableTorchDispatch():
                func(*args, **(kwargs or {}))  # changes the shape of the tensor itself
            return args[0]
        return _lent(func, results, inputs)


def _content(parts: Iterable[Any], inputs: list[torch.Tensor]) -> list[Any]:
    """Arguments with the content of tensors, which are in lists at most and are noted as inputs.

    It runs for every operation, and is much faster than torch's walk through containers.
    """
    found = []
    for part in parts:
        if isinstance(part, torch.Tensor):
            inputs.append(part)
            found.append(_numbers(part))
        else:
            found.append(_content(part, inputs) if isinstance(part, list | tuple) else part)
    return found


def _check(func: Any, inputs: list[torch.Tensor]) -> None:
    """Raise RuntimeError if an operation mixes devices."""
    for part in inputs:
        if isinstance(part, Lent):
            continue
        if part.dim() > 0 or torch.Tag.pointwise not in getattr(func, "tags", ()):
            raise RuntimeError(
                f"{func}: a tensor of shape {tuple(part.shape)} is on {part.device}, and another "
                f"on {HERE}"
            )


def _numbers(part: Any) -> Any:
    return part.numbers if isinstance(part, Lent) else part


def _lent(func: Any, part: Any, inputs: list[torch.Tensor]) -> Any:
    """Return a result on the device; what changed in place is the tensor that it was."""
    if isinstance(part, list | tuple):
        return type(part)([_lent(func, member, inputs) for member in part])
    if not isinstance(part, torch.Tensor):
        return part
    for same in inputs:
        if isinstance(same, Lent) and same.numbers is part:
            if same.shape != part.shape:
                raise NotImplementedError(f"{func}: operations that resize are not served")
            return same
    return Lent(part)


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
