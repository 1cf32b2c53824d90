"""Keeps moments out of mixed precision: a variance is a small difference that bfloat16 loses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch

_DEVICES = ("cpu", "cuda", "mps", "xpu")
_NOTHING = nullcontext()
_REDUCED = (torch.bfloat16, torch.float16)


def full_precision() -> AbstractContextManager:
    """Switch autocast off, in a ``with`` statement, on every device where it is on."""
    return _without_autocast() if torch._C._is_any_autocast_enabled() else _NOTHING


@contextmanager
def _without_autocast() -> Iterator[None]:
    with ExitStack() as stack:
        for device in filter(torch.is_autocast_enabled, _DEVICES):
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def cast_up(argument: Any) -> Any:
    """Arguments of an operation with certain tensors of reduced precision in float32.

    Under autocast they are what other layers have computed; they meet moments of full precision.

    Args:
        argument: tensor, container of tensors or anything else.
    """
    if isinstance(argument, torch.Tensor):
        return argument.float() if argument.dtype in _REDUCED else argument
    if isinstance(argument, tuple | list):
        return type(argument)(map(cast_up, argument))
    if isinstance(argument, dict):
        return {key: cast_up(item) for key, item in argument.items()}
    return argument
