"""Rules that are wrong on purpose, each with the property that must catch it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import jax
import torch

from moment_calculus.numerics.arrays import namespace
from moment_calculus.values import Gaussian, Spread
from moment_calculus.values.spread import all_elements
from tests import cases


@dataclass(frozen=True)
class Mutant:
    """A mistake: the right and the wrong row, and the property that must fail."""

    mistake: str
    original: Any
    case: Any
    check: Callable[[Any], None]

    @property
    def id(self) -> str:
        return f"{self.original.name}-{self.mistake.replace(' ', '_')}"


def row(name: str) -> Any:
    tables = (
        cases.ACTIVATIONS,
        cases.LAYERS,
        cases.WINDOWS,
        cases.LIKELIHOODS,
        cases.DIVERGENCES,
        cases.TEMPERED,
    )
    return next(case for table in tables for case in table if case.name == name)


# ---------------------------------------------------------------------------------------------
# Ways to be wrong


def detached(array: Any) -> Any:
    """The same values without a gradient."""
    return array.detach() if isinstance(array, torch.Tensor) else array


def wrong_on_jax(array: Any) -> Any:
    return array * 1.001 if array_api_compat.is_jax_array(array) else array


def held_on_jax(array: Any) -> Any:
    """The same values, on JAX without a gradient."""
    return jax.lax.stop_gradient(array) if array_api_compat.is_jax_array(array) else array


def mixed_batch(array: Any) -> Any:
    return array + 0.01 * namespace(array).mean(array)


def roughened(array: Any) -> Any:
    """Loses three digits in single precision, none in double precision."""
    return (array + 1e4) - 1e4


def altered(value: Gaussian, mean: Any = None, covariance: Any = None) -> Gaussian:
    """A value with other moments and the same dependence."""
    return Gaussian(
        value.mean if mean is None else mean,
        Spread(covariance=value.joint_covariance() if covariance is None else covariance),
        value.step,
        axis=-1,
        support=value.support,
        propagation=value.propagation,
    )


def unrelated(value: Gaussian) -> Gaussian:
    """A value that has forgotten on which sites it depends."""
    return Gaussian(
        value.mean,
        Spread(value.variance, value.covariance if value.has_covariance else None),
        axis=value.axis,
        support=all_elements(["another site"]),
        propagation=value.propagation,
    )


def wrong_rule(mistake: str, check: Callable, name: str, rule: Callable) -> Mutant:
    """A layer or likelihood with another rule."""
    original = row(name)
    return Mutant(mistake, original, dataclasses.replace(original, rule=rule), check)
