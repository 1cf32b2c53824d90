"""Draw the random numbers of several particles that run at once under torch.vmap."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import pyro
import torch
import torch.nn.functional as F
from torch.distributions import Beta, Dirichlet, Gamma, TransformedDistribution
from torch.overrides import TorchFunctionMode

from moment_calculus import UnsupportedMoments
from moment_calculus.likelihoods import families
from pyro_moments._host import tree_leaves, tree_map
from pyro_moments.evaluation.precision import full_precision
from pyro_moments.evaluation.wrappers import WRAPPERS
from pyro_moments.rules.recurrent import CELLS, layer_rule


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


def _log_ndtr(input: torch.Tensor) -> torch.Tensor:
    """Return log Φ, for which vmap has no rule, by functions for which it has."""
    half = input / math.sqrt(2.0)
    below = half.clamp(max=-0.5)
    tail = torch.log(torch.special.erfcx(-below) / 2) - below * below
    return torch.where(half < -0.5, tail, torch.log1p(-torch.erfc(half.clamp(min=-0.5)) / 2))


def unrolled(name: str) -> Callable:
    """Return a recurrent layer, step by step: vmap runs its steps, but not the layer."""
    layer, rule = getattr(torch, name), layer_rule(name)

    def run(*args: Any) -> Any:
        plain = all(type(part) in _PLAIN for part in tree_leaves(args))
        with contextlib.suppress(UnsupportedMoments):  # packed sequences, dropout between layers
            if plain:
                return rule(*args)
        return layer(*args)

    return run


_PLAIN = (torch.Tensor, torch.nn.Parameter, bool, int, float)
_OUT_OF_PLACE: dict[Callable, Callable] = {
    **{getattr(torch, name): unrolled(name) for name in CELLS},
    torch.Tensor.normal_: _normal,
    torch.Tensor.uniform_: _uniform,
    torch.Tensor.exponential_: _exponential,
    torch.Tensor.cauchy_: _cauchy,
    F.gumbel_softmax: _gumbel_softmax,
    torch.special.log_ndtr: _log_ndtr,
    # aliases, of which torch.vmap knows only the second
    torch.moveaxis: torch.movedim,
    torch.Tensor.moveaxis: torch.Tensor.movedim,
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
    """Runs particles at once by vmap, or one after the other where vmap cannot run the program.

    It remembers what the program needs.
    """

    def __init__(self) -> None:
        self.needs_own_arrays = self.needs_a_loop = False

    def __call__(self, particle: Callable[[int], Any], count: int) -> Any:
        """Return the pytree of what the particles return, [count, ...]; one runs without vmap."""
        seed = int(
            torch.randint(2**31, (), device="cpu")
        )  # of subsamples, which all particles share

        def once(mode: OutOfPlace) -> Any:
            with mode:
                return particle(seed)

        with full_precision(), pyro.validation_enabled(False):
            if count > 1 and not self.needs_a_loop:
                try:
                    return self._mapped(once, count)
                except RuntimeError:  # of vmap, or the model's own, which the loop raises
                    pass
            draws = [once(OutOfPlace()) for _ in range(count)]
            self.needs_a_loop = self.needs_a_loop or count > 1
            return tree_map(lambda *parts: torch.stack(parts), *draws)

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


def mapped_over(function: Callable[[torch.Tensor], Any], rows: torch.Tensor) -> Any:
    """Return what a function, which draws nothing, makes of each row, [rows, ...]."""
    for mode in (lambda _: OutOfPlace(), lambda row: OwnArrays(0 * row.sum())):

        def once(row: torch.Tensor, mode: Callable = mode) -> Any:
            with mode(row):
                return function(row)

        with contextlib.suppress(RuntimeError):  # vmap cannot run the program so
            return torch.vmap(once, randomness="error")(rows)
    return tree_map(lambda *parts: torch.stack(parts), *map(function, rows))


def _mapped(particle: Callable[[torch.Tensor], Any], count: int) -> Any:
    return torch.vmap(particle, randomness="different")(torch.zeros(count, device="cpu"))


def draw_by_gammas(fn: Any) -> torch.Tensor | None:
    """Return a reparameterised draw, or None if fn is not made of a Beta or Dirichlet."""
    inner, shape = families.unwrapped(fn, WRAPPERS)[0], fn.batch_shape + fn.event_shape
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
