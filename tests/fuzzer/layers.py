"""Programs with layers of dropout: their moments over all masks, to first order in the inputs.

Behind a map or a sum, whose outputs see many masks, functions take them as Gaussian; so these
programs end with maps and sums.
"""

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

MOST = 6  # elements of all masks


@dataclass(frozen=True)
class Truth:
    """Mean and covariance [n, n] of the flat output; whether diagonal mode owes it."""

    mean: np.ndarray
    covariance: np.ndarray
    known: bool


def through(jacobians: tuple, size: int, spread: np.ndarray) -> np.ndarray:
    """J Σ Jᵀ of one value, from the Jacobians with respect to each input."""
    jacobian = np.concatenate([part.reshape(size, -1).numpy() for part in jacobians], -1)
    return jacobian @ spread @ jacobian.T


class _Masks:
    """Layers that keep what the next bits say, and how likely that is."""

    def __init__(self, bits: Iterator[bool]) -> None:
        self.bits, self.chance = bits, 1.0

    def __call__(self, value: torch.Tensor, rate: float) -> torch.Tensor:
        kept = [next(self.bits) for _ in range(value.numel())]
        self.chance *= float(np.prod([1 - rate if bit else rate for bit in kept]))
        mask = torch.tensor(kept, dtype=value.dtype).reshape(value.shape)
        return value * mask / (1 - rate)


def size_of_masks(program: Any, means: list[torch.Tensor]) -> int:
    """How many elements all masks have."""
    sizes: list[int] = []

    def layer(value: torch.Tensor, rate: float) -> torch.Tensor:
        sizes.append(value.numel())
        return value

    program.values("torch", [program.output], layer)(*means)
    return sum(sizes)


def over_masks(program: Any, means: list[torch.Tensor], spread: np.ndarray) -> Truth:
    """By the law of total covariance, mask by mask."""
    found = []
    for bits in itertools.product((True, False), repeat=size_of_masks(program, means)):
        found.append(_under(program, means, spread, bits))
    values, covariances, chances = (np.array(part) for part in zip(*found, strict=True))
    mean = np.tensordot(chances, values, 1)
    deviations = (values - mean).reshape(len(chances), -1)
    between = np.einsum("m,mi,mj->ij", chances, deviations, deviations)
    return Truth(mean, np.tensordot(chances, covariances, 1) + between, False)


def _under(program: Any, means: list[torch.Tensor], spread: np.ndarray, bits: Any) -> tuple:
    """The value, its covariance and the chance of one outcome of all masks."""
    masks = _Masks(iter(()))

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        masks.bits, masks.chance = iter(bits), 1.0
        return program.values("torch", [program.output], masks)(*inputs)[0]

    jacobians = torch.func.jacrev(run, argnums=tuple(range(len(means))))(*means)
    value = run(*means)
    return value.numpy(), through(jacobians, value.numel(), spread), masks.chance


@functools.cache
def _primitive() -> Any:
    """A primitive of JAX for a layer of dropout, whose rule is the calculus' own."""
    import jax
    from jax.extend import core

    from moment_calculus.operations.dropout.noise import drop, noise_name
    from numpyro_moments import moment_rule

    primitive = core.Primitive("fuzzed_dropout")
    primitive.def_abstract_eval(lambda x, *, rate: jax.core.ShapedArray(x.shape, x.dtype))

    @moment_rule("fuzzed_dropout")
    def rule(x: Any, *, rate: float) -> Any:
        value = x.gaussian()
        return drop(x, rate, noise_name(), value.propagation, axis=value.axis)

    return primitive


def dropped_in_jax(value: Any, rate: float) -> Any:
    """A layer of dropout in JAX."""
    return _primitive().bind(value, rate=rate)
