"""Random numbers under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OutOfPlace(TorchFunctionMode):
    """Draws out of place what distributions of torch draw in place, which vmap does not know.

    They use what such a function returns, and fill nothing but what they have just made.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function, or what draws like it."""
        return _LIKE.get(func, func)(*args, **(kwargs or {}))


def _normal(like: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return mean + std * torch.randn(like.shape, dtype=like.dtype, device=like.device)


def _uniform(like: torch.Tensor, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    return low + (high - low) * torch.rand(like.shape, dtype=like.dtype, device=like.device)


def _exponential(like: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    return -torch.log1p(-_uniform(like)) / rate


_LIKE = {
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
}
