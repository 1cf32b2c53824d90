"""The rule book ``logistic``: the formulas of feed-forward propagation by logistic functions.

Source: Shekhovtsov et al. 2018, [FUP] appendices C.1 to C.7, in the forms of its experiments: leaky
relu by equations 36 and 39, with Φ(x) as S(πx/√3) and R(a) as S(a/0.3729); sigmoids by (AP2b) and
equation 21; the largest of several values by equations 33 and 41; softmax and classes by equation
52. Fields of :class:`Logistic` choose other formulas. Other functions keep their exact rules.

For N(0.5, 1), means of relu, sigmoid and tanh are 1.01, 1.01 and 1.10 times the exact ones, and
standard deviations 1.20, 1.06 and 1.07 times.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Delegating, Rescaled
from moment_calculus.functions.derived import Derived, left_out
from moment_calculus.functions.table import Heaviside, LeakyReLU, ReLU, Sigmoid, Tanh
from moment_calculus.likelihoods.classes.shares import (
    LOGISTIC_VARIANCE,
    Normal,
    Simplified,
)
from moment_calculus.likelihoods.classes.shares import Logistic as LogisticShares
from moment_calculus.numerics.arrays import Array, expit, log1p, log_ndtr, namespace, safe_scale
from moment_calculus.numerics.normal import LIMIT, cdf, pdf
from moment_calculus.operations.elementwise.stated import stated
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import is_value, scale_shift
from moment_calculus.values import Gaussian, Value, elementwise_covariance
from moment_calculus.values.propagation import RuleBook, check_choice

SCALE = LOGISTIC_VARIANCE**0.5  # of the standard logistic distribution
FITTED = 0.3729  # t of R(a) ≈ S(a/t), fitted for leaky relu of slope 0.01 [FUP D.1]
LAPLACE = math.log(2.0)  # S is nearly the distribution function of Laplace's law of scale 1/log 2


# -------------------------------------------------------------------------------------------------
# The logistic function [FUP C.3, C.4]


def _ap2b(mean: Array, variance: Array) -> Array:
    return expit(mean * (variance / LOGISTIC_VARIANCE + 1) ** -0.5)


def _piecewise_exponential(mean: Array, variance: Array) -> Array:
    """Return the mean of the distribution function of a Laplace law."""
    xp, scale = namespace(mean), safe_scale(variance)

    def side(ratio: Array) -> Array:
        exponent = LAPLACE * ratio + 0.5 * LAPLACE**2 * variance
        return 0.5 * xp.exp(exponent + log_ndtr((-ratio - LAPLACE * variance) / scale))

    return cdf(mean / scale) + side(mean) - side(-mean)


MEANS: dict[str, Callable[[Array, Array], Array]] = {
    "ap1": lambda mean, variance: expit(mean),
    "ap2a": lambda mean, variance: cdf(mean * (variance + LOGISTIC_VARIANCE) ** -0.5),
    "ap2b": _ap2b,
    "pea": _piecewise_exponential,
}


def _large_variance(mean: Array, variance: Array, centre: Array, rest: Array) -> Array:
    second = cdf((mean - 1) * (variance + LOGISTIC_VARIANCE - 1) ** -0.5)
    return namespace(mean).clip(second - centre * centre, min=0.0)


VARIANCES: dict[str, Callable[..., Array]] = {
    "eq21": lambda mean, variance, centre, rest: (
        4 * variance / (variance + 4) * (centre * rest) ** 2
    ),
    "eq22": _large_variance,
}


class _Transform(Delegating):
    """A sigmoid by a formula for its mean and one for its variance."""

    def __init__(self, function: Any, mean: str, variance: str) -> None:
        super().__init__(function)
        self.mean, self.variance = MEANS[mean], VARIANCES[variance]

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the moments; those of the plain function where x is certain."""
        xp, random = namespace(mean), variance > 0
        spread = xp.where(random, variance, xp.ones_like(variance))
        centre, rest = self.mean(mean, spread), self.mean(-mean, spread)
        image_variance = self.variance(mean, spread, centre, rest)
        image_variance = xp.where(random, image_variance, 0 * image_variance)
        return xp.where(random, centre, self.function(mean)), image_variance


# -------------------------------------------------------------------------------------------------
# Rectifiers and the step [FUP C.2, C.5, C.6]


def _ratio(mean: Array, variance: Array) -> tuple[Array, Array]:
    scale = safe_scale(variance)
    return scale, namespace(mean).clip(mean / scale, min=-LIMIT, max=LIMIT)


class _Fitted(Delegating):
    """A leaky relu of some slope by equations 36 and 39."""

    def __init__(self, function: Any, slope: Any) -> None:
        super().__init__(function)
        self.slope = slope

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the moments by logistic functions of μ/σ."""
        (scale, ratio), slope = _ratio(mean, variance), self.slope
        centre = mean * (slope + (1 - slope) * expit(SCALE * ratio))
        spread = slope * slope + (1 - slope * slope) * expit(ratio / FITTED)
        return centre + scale * (1 - slope) * pdf(ratio), variance * spread


# Bₙ / (n + 1)!, of which −Li₂(−w) is a series in t = log(1 + w), beside t + t²/4, for w ≤ 1.
_BERNOULLI = (1 / 36, -1 / 3600, 1 / 211680, -1 / 10886400, 1 / 526901760, -4.0647616e-11, 8.92e-13)


class _OfLogisticLaw(Delegating):
    """A relu of a logistic variable: its mean is a softplus, its variance has a dilogarithm."""

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return s log(1 + exp(μ/s)) and −2 s² Li₂(−exp(μ/s)) less the squared mean."""
        xp = namespace(mean)
        scale, ratio = _ratio(mean, variance)
        size = xp.abs(SCALE * ratio)
        small = log1p(xp.exp(-size))
        above = ratio > 0
        # −Li₂(−eᵘ) = π²/6 + u²/2 + Li₂(−e⁻ᵘ)
        series = small * (1 + small / 4 + _odd(small))
        below_zero = 2 * series - small * small
        above_zero = math.pi**2 / 3 - 2 * series - (2 * size + small) * small
        unit = scale / SCALE
        spread = unit * unit * xp.where(above, above_zero, below_zero)
        return xp.clip(mean, min=0.0) + unit * small, xp.where(variance > 0, spread, 0 * spread)


def _odd(small: Array) -> Array:
    square, total = small * small, 0.0
    for coefficient in reversed(_BERNOULLI):
        total = coefficient + square * total
    return square * total


class _LogisticStep(Delegating):
    """A step of a logistic variable."""

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return S(μ/s) and its Bernoulli variance; the step where x is certain."""
        xp, random = namespace(mean), variance > 0
        ratio = SCALE * _ratio(mean, variance)[1]
        share, spread = expit(ratio), expit(ratio) * expit(-ratio)
        return xp.where(random, share, self.function(mean)), xp.where(random, spread, 0 * spread)


# -------------------------------------------------------------------------------------------------
# The largest of several values [FUP C.6]


@dataclass(frozen=True)
class _Larger:
    """The larger of two values: mean by equation 33, variance by 40 or 41."""

    variance: str

    def of_entries(
        self, first: tuple[Array, Array], second: tuple[Array, Array], covariance: Any
    ) -> tuple[Array, Array, Array]:
        """Return its moments, and the expected derivative by the first."""
        (mean, variance), (other, spread) = first, second
        difference = variance + spread - 2 * covariance
        scale, ratio = _ratio(mean - other, namespace(mean).clip(difference, min=0.0))
        share = expit(SCALE * ratio)
        centre = other + (mean - other) * share + scale * pdf(ratio)
        if self.variance == "eq41":
            maximum_variance = variance * expit(ratio / FITTED) + spread * expit(-ratio / FITTED)
        else:
            own = ReLU().moments(ratio, namespace(ratio).ones_like(ratio))[1]
            maximum_variance = variance * own + spread * (own - cdf(ratio) + cdf(-ratio))
        return centre, namespace(maximum_variance).clip(maximum_variance, min=0.0), share

    def of_values(self, left: Any, right: Any) -> Value:
        """Return it with the dependence that the expected derivatives give."""
        parts = [part.gaussian() if is_value(part) else part for part in (left, right)]
        first, second = (_moments(part, parts[0]) for part in parts)
        known = elementwise_covariance(*parts) if is_value(parts[1]) else 0.0
        mean, variance, share = self.of_entries(first, second, 0.0 if known is None else known)
        terms = (scale_shift(parts[0], share), _scaled(parts[1], 1 - share))
        return stated(add(*terms).gaussian(), mean, variance)


def _moments(part: Any, like: Gaussian) -> tuple[Array, Array]:
    if is_value(part):
        return part.mean, part.variance
    zero = 0.0 * like.mean
    return zero + part, zero


def _scaled(part: Any, share: Array) -> Any:
    return scale_shift(part, share) if is_value(part) else part * share


# -------------------------------------------------------------------------------------------------
# The book

SOFTMAX = {"simplified": Simplified(), "logistic": LogisticShares(), "normal": Normal()}
OPTIONS = {
    "mean": tuple(MEANS),
    "variance": tuple(VARIANCES),
    "relu": ("eq39", "dilogarithm"),
    "maximum": ("eq41", "eq40"),
    "softmax": tuple(SOFTMAX),
}


@dataclass(frozen=True)
class Logistic(RuleBook):
    """The book by its formulas for sigmoids, rectifiers, the largest of values and softmax."""

    name: str = "logistic"
    mean: str = "ap2b"  # of a sigmoid; also "ap1", "ap2a" and "pea"
    variance: str = "eq21"  # of a sigmoid; also "eq22", for large variances
    relu: str = "eq39"  # also "dilogarithm", of a logistic variable
    maximum: str = "eq41"  # also "eq40"
    softmax: str = "simplified"  # also "logistic" and "normal"

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown formula; seat those of operations."""
        for option, candidates in OPTIONS.items():
            check_choice(option, getattr(self, option), candidates)
        larger = _Larger(self.maximum)
        seats = {
            "maximum": larger.of_values,
            "largest": larger.of_entries,
            "softmax": SOFTMAX[self.softmax].log_shares,
            "categorical": SOFTMAX[self.softmax],
        }
        object.__setattr__(self, "operations", seats | dict(self.operations))

    def ruled(self, function: Any) -> Any:
        """Return a sigmoid, tanh, rectifier or step by the formulas of the book."""
        kind = type(function)
        if kind is Sigmoid:
            return _Transform(function, self.mean, self.variance)
        if kind is Tanh:
            sigmoid = _Transform(Sigmoid(), self.mean, self.variance)
            return Rescaled(Derived(sigmoid, left_out(_Transform)), 2.0, 2.0, -1.0, name="tanh")
        if kind is ReLU and self.relu == "dilogarithm":
            return _OfLogisticLaw(function)
        if kind in (ReLU, LeakyReLU):
            return _Fitted(function, getattr(function, "negative_slope", 0.0))
        return _LogisticStep(function) if kind is Heaviside else function


BOOK = Logistic()
