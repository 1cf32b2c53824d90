"""Draw the random numbers of several particles that run at once under torch.vmap."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyro
import torch
import torch.nn.functional as F
from torch.distributions import Beta, Dirichlet, Gamma, TransformedDistribution
from torch.overrides import TorchFunctionMode

from moment_calculus.errors import UnsupportedMoments, raising_line
from moment_calculus.likelihoods.families import unwrapped
from pyro_moments._host import tree_map
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.wrappers import WRAPPERS


class OutOfPlace(TorchFunctionMode):
    """Replaces in-place draws of torch's distributions, which vmap does not support, by others.

    The distributions use only what these functions return, and fill only tensors that
    they made.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function, or its replacement that draws out of place."""
        return _OUT_OF_PLACE.get(func, func)(*args, **(kwargs or {}))


def _normal(like: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return mean + std * torch.randn(like.shape, dtype=like.dtype, device=like.device)


def _uniform(like: torch.Tensor, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    return low + (high - low) * torch.rand(like.shape, dtype=like.dtype, device=like.device)


def _exponential(like: torch.Tensor, rate: float = 1.0) -> torch.Tensor:
    return -torch.log1p(-_uniform(like)) / rate


def _cauchy(like: torch.Tensor, median: float = 0.0, sigma: float = 1.0) -> torch.Tensor:
    return median + sigma * torch.tan(math.pi * (_uniform(like) - 0.5))


def _gumbel_softmax(
    logits: torch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> torch.Tensor:
    soft = ((logits - torch.log(_exponential(logits))) / tau).softmax(dim)
    if not hard:
        return soft
    largest = (soft == soft.amax(dim, keepdim=True)).to(soft)
    return largest + (soft - soft.detach())


_OUT_OF_PLACE: dict[Callable, Callable] = {
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
    torch.Tensor.cauchy_: _cauchy,
    F.gumbel_softmax: _gumbel_softmax,
}


class OwnArrays(OutOfPlace):
    """Gives every particle arrays of its own, which it may fill in place with its draws."""

    def __init__(self, zero: torch.Tensor) -> None:
        super().__init__()
        self.zero = zero  # a zero that vmap maps over, one for each particle

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Call the function; a new array becomes one array for each particle."""
        result = super().__torch_function__(func, types, args, kwargs)
        return result + self.zero.to(result) if func in _CONSTRUCTORS else result


_CONSTRUCTORS = {
    *(torch.zeros, torch.ones, torch.empty, torch.full),
    *(torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like),
    *(torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_empty),
    *(torch.Tensor.new_full, torch.Tensor.clone),
}


class VmapRunner:
    """Runs particles at once by vmap; remembers whether each needs arrays of its own."""

    def __init__(self) -> None:
        self.needs_own_arrays = False

    def __call__(self, particle: Callable[[int], Any], count: int) -> Any:
        """Return the pytree of what the particles return, [count, ...]; one runs without vmap."""
        seed = int(
            torch.randint(2**31, (), device="cpu")
        )  # of subsamples, which all particles share

        def once(mode: OutOfPlace) -> Any:
            with mode:
                return particle(seed)

        with full_precision(), pyro.validation_enabled(False):
            if count == 1:
                return tree_map(lambda part: part[None], once(OutOfPlace()))
            try:
                return self._mapped(once, count)
            except RuntimeError as error:
                with torch.no_grad():
                    once(OutOfPlace())  # raises the model's own error, if it has one
                raise _not_vectorised(error, count) from error

    def _mapped(self, once: Callable[[OutOfPlace], Any], count: int) -> Any:
        if self.needs_own_arrays:
            return _mapped(lambda zero: once(OwnArrays(zero)), count)
        try:
            return _mapped(lambda _: once(OutOfPlace()), count)
        except RuntimeError as error:
            first_error = error
        try:  # only now, because vmap cannot run code that branches on per-particle values
            result = _mapped(lambda zero: once(OwnArrays(zero)), count)
        except RuntimeError:
            raise first_error from None
        self.needs_own_arrays = True
        return result


def _mapped(particle: Callable[[torch.Tensor], Any], count: int) -> Any:
    return torch.vmap(particle, randomness="different")(torch.zeros(count, device="cpu"))


def _not_vectorised(error: RuntimeError, count: int) -> UnsupportedMoments:
    """Return the error that explains why torch.vmap cannot run a model."""
    sentences = str(error).partition("\n")[0].removeprefix("vmap: ").split(". ")
    reason = ". ".join(part for part in sentences if "file" not in part).rstrip(".")
    return UnsupportedMoments(
        f"the {count} particles are run at once, by torch.vmap, which cannot run this line of the "
        f"model: {reason}",
        remedy="let no value of a tensor decide what is run or how large it is (torch.where in "
        "place of .item(), if, and x[mask]), fill in place only what the model makes, put "
        "BatchNorm into evaluation (.eval()); or use num_particles=1, which runs the model as it "
        "is, or propagation='analytic'",
        location=raising_line(error),
    )


def draw_by_gammas(fn: Any) -> torch.Tensor | None:
    """Return a reparameterised draw, or None if fn is not made of a Beta or Dirichlet."""
    inner, shape = unwrapped(fn, WRAPPERS)[0], fn.batch_shape + fn.event_shape
    if isinstance(inner, Dirichlet):
        return _divided(inner.concentration.expand(shape))
    if isinstance(inner, Beta):
        pairs = torch.stack([inner.concentration1, inner.concentration0], -1)
        return _divided(pairs.expand(*shape, 2))[..., 0]
    if not isinstance(inner, TransformedDistribution):
        return None
    if shape != inner.batch_shape + inner.event_shape:
        inner = inner.expand(shape[: len(shape) - len(inner.event_shape)])
    value = draw_by_gammas(inner.base_dist)
    for transform in inner.transforms if value is not None else ():
        value = transform(value)
    return value


def _divided(concentration: torch.Tensor) -> torch.Tensor:
    gammas = Gamma(concentration, torch.ones_like(concentration), validate_args=False).rsample()
    parts = gammas / gammas.sum(-1, keepdim=True)
    precision = torch.finfo(concentration.dtype)
    return parts.clamp(precision.tiny, 1 - precision.eps / 2)
