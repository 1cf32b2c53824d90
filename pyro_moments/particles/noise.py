"""Random numbers under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro
import torch
from torch.overrides import TorchFunctionMode

from pyro_moments.evaluation.precision import full_precision


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


_LIKE: dict[Callable, Callable] = {
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
}


def vectorised(particle: Callable[[int], Any], count: int) -> Any:
    """What particles give, on a leading axis.

    Args:
        particle: makes a pytree of tensors, from the seed of the subsamples that all share.
        count: number of particles.
    """
    seed = int(torch.randint(2**31, ()))

    def once(_: torch.Tensor) -> Any:
        with OutOfPlace():
            return particle(seed)

    with full_precision(), pyro.validation_enabled(False):
        return torch.vmap(once, randomness="different")(torch.arange(count))
