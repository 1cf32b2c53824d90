"""Multiplication by independent noise z with E[z] = 1 and Var[z] = r, as in dropout.

E[x∘z] = E[x] and Cov[x∘z] = Cov[x] + r diag(Var[x] + E[x]²), for noise of each component:
x∘z is x plus a deviation u = x∘(z − 1) that is uncorrelated with x and everything else.
Source: Shekhovtsov et al. 2018, eq. 8; Srivastava et al. 2014, section 10 (other noises).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.matrices import squared
from moment_calculus.numerics.rulebook import Propagation
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.sums import try_add
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.values import Gaussian, Root, Spread
from moment_calculus.values.entries import entries_of
from moment_calculus.values.support import all_elements

_numbers = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Noise(Root):
    """Step of noise drawn anew for every datum: noisy certain inputs, or the noise alone."""

    data = True


def noise_name(what: str = "dropout") -> str:
    """Return a new name for noise; noises with different names are independent."""
    return f"{what} {next(_numbers)}"


def is_data(value: Gaussian) -> bool:
    """Whether a value is data with noise, at most rearranged or scaled."""
    entries = entries_of(value)
    return (value.origin if entries is None else entries.site).step.data


def variance_ratio(rate: Any) -> Any:
    """Return the variance p/(1 − p) of inverted noise z ~ Bernoulli(1 − p)/(1 − p)."""
    return rate / (1 - rate)


def noise(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Make noise with independent components; noise of the same name is the same."""
    return Gaussian(
        mean,
        Spread(variance),
        Noise(),
        axis=axis if len(mean.shape) else None,
        support=all_elements([name]),
        propagation=propagation,
    )


def multiply_by_noise(
    x: Any, ratio: Any, name: str, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Return x∘z, exact in mean and covariance, for noise of variance ``ratio`` ≥ 0."""
    if not is_value(x):
        return noise(name, x, ratio * squared(x), propagation, axis=axis)
    x = x.gaussian()
    xp = namespace(x.mean)
    variance = ratio * (x.variance + squared(x.mean))
    return try_add(x, noise(name, xp.zeros_like(x.mean), variance, propagation, axis=x.axis))
