"""Random numbers under vmap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from moment_calculus.refusals.errors import UnsupportedMoments
from moment_calculus.refusals.places import raising_line
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


def _cauchy(like: torch.Tensor, median: float = 0.0, sigma: float = 1.0) -> torch.Tensor:
    return median + sigma * torch.tan(math.pi * (_uniform(like) - 0.5))


_LIKE: dict[Callable, Callable] = {
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
    torch.Tensor.cauchy_: _cauchy,
}


class ArraysApart(OutOfPlace):
    """Gives every particle arrays of its own, which it may fill in place with what it has drawn.

    Args:
        zero: of each particle.
    """

    def __init__(self, zero: torch.Tensor) -> None:
        super().__init__()
        self.zero = zero

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function; what makes an array makes one of each particle."""
        found = super().__torch_function__(func, types, args, kwargs)
        return found + self.zero.to(found) if func in _MAKES else found


_MAKES = {
    *(torch.zeros, torch.ones, torch.empty, torch.full),
    *(torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like),
    *(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_empty),
    *(torch.Tensor.new_full, torch.Tensor.clone),
}


class AtOnce:
    """Runs particles at once, by vmap; remembers whether they have to have arrays of their own."""

    def __init__(self) -> None:
        self.apart = False

    def __call__(self, particle: Callable[[int], Any], count: int) -> Any:
        """What particles give, on a leading axis; one is run as it is, without vmap.

        Args:
            particle: makes a pytree of tensors, from the seed of the subsamples that all share.
            count: number of particles.

        Raises:
            UnsupportedMoments: if one particle can be run, but not several at once.
        """
        seed = int(torch.randint(2**31, ()))

        def once(mode: OutOfPlace) -> Any:
            with mode:
                return particle(seed)

        with full_precision(), pyro.validation_enabled(False):
            if count == 1:
                return pytree.tree_map(lambda part: part[None], once(OutOfPlace()))
            try:
                return self._mapped(once, count)
            except RuntimeError as error:
                with torch.no_grad():
                    once(OutOfPlace())  # whose error is the model's own
                raise _not_vectorised(error, count) from error

    def _mapped(self, once: Callable[[OutOfPlace], Any], count: int) -> Any:
        if self.apart:
            return _mapped(lambda zero: once(ArraysApart(zero)), count)
        try:
            return _mapped(lambda _: once(OutOfPlace()), count)
        except RuntimeError as error:
            refused = error
        try:  # after, not before: what is decided by the values of such arrays, vmap cannot run
            found = _mapped(lambda zero: once(ArraysApart(zero)), count)
        except RuntimeError:
            raise refused from None
        self.apart = True
        return found


def _mapped(particle: Callable[[torch.Tensor], Any], count: int) -> Any:
    return torch.vmap(particle, randomness="different")(torch.zeros(count))


def _not_vectorised(error: RuntimeError, count: int) -> UnsupportedMoments:
    """What torch's refusal to vectorise a program means."""
    said = str(error).partition("\n")[0].removeprefix("vmap: ").split(". ")
    reason = ". ".join(part for part in said if "file" not in part).rstrip(".")
    return UnsupportedMoments(
        f"the {count} particles are run at once, by torch.vmap, which cannot run this line of the "
        f"model: {reason}",
        remedy="let no value of a tensor decide what is run or how large it is (torch.where in "
        "place of .item(), if, and x[mask]), fill in place only what the model makes, put "
        "BatchNorm into evaluation (.eval()); or use num_particles=1, which runs the model as it "
        "is, or propagation='analytic'",
        location=raising_line(error),
    )
