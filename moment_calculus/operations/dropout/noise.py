"""Multiplication by independent noise of mean one, as in dropout.

With z independent of x and of everything else, E[z] = 1 and Var[z] = r,

    E[x∘z] = E[x],    Cov[x∘z] = Cov[x] + r diag(Var[x] + E[x]²)

where every component has noise of its own: x∘z is x plus a deviation u = x∘(z − 1) that has no
covariance with x, with itself elsewhere, or with anything else.

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
from moment_calculus.operations.elementwise.sums import sum_of
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.values import Gaussian, Root, Spread
from moment_calculus.values.entries import entries_of
from moment_calculus.values.support import whole

_numbers = itertools.count(1)


@dataclass(frozen=True, eq=False)
class Noise(Root):
    """Drawn anew for every datum: certain inputs with noise on them, or the noise alone."""

    data = True


def noise_name(what: str = "dropout") -> str:
    """A name for noise that is drawn once: different noises are independent.

    Args:
        what: draws it.
    """
    return f"{what} {next(_numbers)}"


def is_data(value: Gaussian) -> bool:
    """Whether a value is data with noise, put elsewhere and scaled at most.

    Args:
        value: a value.
    """
    entries = entries_of(value)
    return (value.origin if entries is None else entries.site).step.data


def variance_ratio(rate: Any) -> Any:
    """Variance p/(1 − p) of inverted noise z ~ Bernoulli(1 − p)/(1 − p).

    Args:
        rate: p, the probability to drop, a number or array below one.
    """
    return rate / (1 - rate)


def noise(
    name: str, mean: Array, variance: Array, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """Noise with independent components.

    Args:
        name: of the noise; that of the same name is the same.
        mean: array of its shape.
        variance: array of its shape.
        propagation: how randomness flows.
        axis: its feature axis.
    """
    return Gaussian(
        mean,
        Spread(variance),
        Noise(),
        axis=axis if len(mean.shape) else None,
        support=whole([name]),
        propagation=propagation,
    )


def dropped(
    x: Any, ratio: Any, name: str, propagation: Propagation, *, axis: int | None = -1
) -> Gaussian:
    """x∘z with noise of mean one for each component, exact in mean and covariance.

    Args:
        x: value or array.
        ratio: variance r of the noise, not negative; broadcastable with x.
        name: of the noise.
        propagation: how randomness flows.
        axis: feature axis of the result where x is certain.
    """
    if not is_value(x):
        return noise(name, x, ratio * squared(x), propagation, axis=axis)
    x = x.gaussian()
    xp = namespace(x.mean)
    variance = ratio * (x.variance + squared(x.mean))
    return sum_of(x, noise(name, xp.zeros_like(x.mean), variance, propagation, axis=x.axis))
