"""Keep moments out of mixed precision: a variance is a small difference that bfloat16 loses.

The errors of torch about tensors of different precision are explained, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from moment_calculus import UnsupportedMoments
from pyro_moments._host import tree_map

_DEVICES = ("cpu", "cuda", "mps", "xpu")
_NOTHING = nullcontext()
_REDUCED = (torch.bfloat16, torch.float16)


def is_autocast_on() -> bool:
    """Return whether mixed precision is on for any device."""
    return any(map(torch.is_autocast_enabled, _DEVICES))


def full_precision() -> AbstractContextManager:
    """Return a context that switches autocast off on every device where it is on."""
    return _without_autocast() if is_autocast_on() else _NOTHING


@contextmanager
def _without_autocast() -> Iterator[None]:
    with ExitStack() as stack:
        for device in filter(torch.is_autocast_enabled, _DEVICES):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def to_float32(argument: Any) -> Any:
    """Cast certain tensors of reduced precision in an argument to float32.

    Under autocast other layers compute them, and they meet moments of full precision.
    """

    def cast(part: Any) -> Any:
        reduced = isinstance(part, torch.Tensor) and part.dtype in _REDUCED
        return part.float() if reduced else part

    return tree_map(cast, argument)


_MIXED = re.compile(r"same dtype|scalar type \w+ but found|does not match weight dtype")


# by whether parameters are double
_WAYS = {
    False: "pass x.float(), or train by fit with float64=True",
    True: "make the tensors of the model by dtype=torch.get_default_dtype(), or pass them as "
    "arguments, which fit converts",
}


def mixed_precision_error(error: Exception, parts: dict[str, Any]) -> UnsupportedMoments | None:
    """Return an error that explains torch's about mixed precision; None for others."""
    if not _MIXED.search(str(error)):
        return None
    tensors = {name: part for name, part in parts.items() if isinstance(part, torch.Tensor)}
    default = torch.get_default_dtype()
    others = {name: part.dtype for name, part in tensors.items() if part.dtype != default}
    dtypes = ", ".join(f"{name} is {dtype}" for name, dtype in others.items())
    return UnsupportedMoments(
        "tensors of different precision meet, and torch does not convert them: "
        + (dtypes or str(error).partition("\n")[0])
        + f", and parameters are made in {default}: {_WAYS[default == torch.float64]}",
        remedy="convert the data to the dtype of the parameters, e.g. x.float(), or make these in "
        "that of the data: call torch.set_default_dtype(torch.float64) before model and guide",
    )
