"""The rule book ``vbp``: activations as gates that know the mean of their input alone.

A piecewise linear function of x ~ N(μ, v) is Σ z_k (a_k x + b_k) with one z_k for each piece, and z
independent of x under the posterior: E z = S(C (μ − knot)) at a knot, nearly a step. The largest
of several values is the one with the largest mean.

Sigmoid and tanh have three pieces: tanh is −1, x and 1 with knots at ±1, sigmoid 0, 1/2 + x/4 and
1 with knots at ±2. Other functions keep their exact rules. Classes have the expansions to second
order of the logsumexp and of the softmax, and ``categorical=`` chooses another rule for them.
Outcomes of a probability Φ(f), as Bernoulli(probs=Φ(f)) of one or of many labels, have the bound of
section 2.7: decision margins y ~ N(√(1 + 1/β) f, 1/β) and t ~ Ber(Φ(y)) give
log ∫ p(t|y) exp(E log p(y|f)) dy = log Φ(±E f) − ½ (1 + β) Var f, no more than E log Φ(±f), with
β = ``margin_precision``. For f ~ N(0, 1) it is −1.69 (β = 1) and −1.19 (β = 0, the tightest), and
E log Φ is −1.

``VBP(expected_kl=True)`` adds the expected KL of the gates to the loss, equation 11, which the
source drops. Source: Haussmann et al. 2019, [VBP] propositions 1 to 3, appendices B.1 and B.2.

The mean of relu at μ = 0 is 0, and 0.40 σ in truth; for N(0.5, 1) means of relu, sigmoid and tanh
are 0.72, 1.04 and 1.69 times the exact ones, and standard deviations 1.34, 1.24 and 1.69 times.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from moment_calculus.functions.base import Delegating
from moment_calculus.functions.table import (
    Heaviside,
    LeakyReLU,
    PiecewiseLinear,
    ReLU,
    Sigmoid,
    Tanh,
)
from moment_calculus.likelihoods.classes.shares import Expanded
from moment_calculus.likelihoods.links import LOG_NDTR
from moment_calculus.numerics.arrays import Array, expit, namespace
from moment_calculus.numerics.execution import known_all_false
from moment_calculus.numerics.normal import is_single_precision
from moment_calculus.operations.elementwise.choices import pick_components
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.values import Value
from moment_calculus.values.propagation import RuleBook

Line = tuple[Any, Any]  # slope and value at zero

# Lines of the pieces of functions, and the knots between them.
_TWO: dict[type, tuple[Line, Line]] = {ReLU: ((0, 0), (1, 0)), Heaviside: ((0, 0), (0, 1))}
_THREE = {
    Sigmoid: ((-2.0, 2.0), ((0, 0), (0.25, 0.5), (0, 1))),
    Tanh: ((-1.0, 1.0), ((0, -1), (1, 0), (0, 1))),
}


# Where gates of float32 become 0: below 1e-22, they make products that are denormal numbers,
# which take a convolution three times as long.
SINGLE_LIMIT = -50.0


def _gate(ratio: Array) -> Array:
    """Return S(place)."""
    xp, share = namespace(ratio), expit(ratio)
    if not is_single_precision(share):
        return share
    return xp.where(ratio > SINGLE_LIMIT, share, 0.0 * share)


def _line(slope: Any, level: Any, x: Array) -> Any:
    """Return slope · x + level, zero as a number."""
    return level if _is_zero(slope) else slope * x + level


def _is_zero(part: Any) -> bool:
    return isinstance(part, int | float) and part == 0


class _Gated(Delegating):
    """A function as lines of which gates choose one."""

    def __init__(
        self, function: Any, knots: Sequence[float], lines: Sequence[Line], sharpness: float
    ) -> None:
        super().__init__(function)
        self.places, self.lines, self.sharpness = knots, lines, sharpness

    def _shares(self, mean: Array) -> list[Array]:
        """Return the expectation of every gate."""
        ratios = [self.sharpness * (mean - knot) for knot in self.places]
        # S(a) − S(b) = S(a) S(−b) (1 − exp(b − a)) for two neighbouring knots
        between = [
            _gate(a) * _gate(-b) * -math.expm1(self.sharpness * (low - high))
            for a, b, low, high in zip(
                ratios, ratios[1:], self.places, self.places[1:], strict=False
            )
        ]
        return [_gate(-ratios[0]), *between, _gate(ratios[-1])]

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return E Σ z (a x + b) and its variance; the function and zero where x is certain."""
        shares = self._shares(mean)
        parts = [(p, _line(a, b, mean), a) for p, (a, b) in zip(shares, self.lines, strict=True)]
        nothing = 0.0 * mean
        centre = sum((p * value for p, value, _ in parts if not _is_zero(value)), nothing)
        slope = sum((p * (a * a) for p, _, a in parts if not _is_zero(a)), nothing)
        spread = slope * variance
        for (share, value, _), (other, far, _) in itertools.combinations(parts, 2):
            spread = spread + share * other * (value - far) ** 2
        certain = ~(variance > 0)
        if known_all_false(certain):
            return centre, spread
        where = namespace(mean).where
        return where(certain, self.function(mean), centre), where(certain, nothing, spread)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return E Σ z a; the slope of the function where x is certain."""
        shares = zip(self._shares(mean), self.lines, strict=True)
        gain = sum(share * slope for share, (slope, _) in shares)
        plain = self.function.gain(mean, variance)
        return namespace(mean).where(variance > 0, gain, plain)


class _Bounded(Delegating):
    """The logarithm of Φ by the lower bound of its mean."""

    def __init__(self, function: Any, curvature: float) -> None:
        super().__init__(function)
        self.curvature = curvature

    def expectation(self, mean: Array, variance: Array) -> Array:
        """Return the bound."""
        return self.function(mean) - self.curvature / 2 * variance

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the bound of the mean, and the exact variance."""
        return self.expectation(mean, variance), self.function.moments(mean, variance)[1]


def _larger_of_values(left: Any, right: Any) -> Value:
    """Return the operand with the larger mean, component by component."""
    means = [part.at_mean if is_value(part) else part for part in (left, right)]
    mask = means[0] >= means[1]
    return pick_components(
        lambda one, other: namespace(mask).where(mask, one, other), (left, right)
    )


def _larger_of_entries(
    first: tuple[Array, Array], second: tuple[Array, Array], covariance: Array | float
) -> tuple[Array, Array, Array]:
    """Return the moments of the entry with the larger mean, and where that is the first."""
    xp, (mean, variance), (other, spread) = namespace(first[0]), first, second
    mask, one = mean >= other, namespace(mean).ones_like(mean)
    share = xp.where(mask, one, 0 * one)
    return xp.where(mask, mean, other), xp.where(mask, variance, spread), share


@dataclass(frozen=True)
class VBP(RuleBook):
    """The book by the sharpness C of its gates S(C E x)."""

    name: str = "vbp"
    operations: Any = field(
        default_factory=lambda: {
            "maximum": _larger_of_values,
            "largest": _larger_of_entries,
            "categorical": Expanded(),
        },
        hash=False,
    )
    sharpness: float = 100.0
    margin_precision: float = 1.0  # β of the decision margins behind outcomes
    expected_kl: bool = False  # whether the ELBO has the expected KL of the gates, equation 11

    @property
    def has_terms(self) -> bool:
        """Whether the ELBO has the expected KL of the gates."""
        return self.expected_kl

    def term(self, function: Any, mean: Array, variance: Array) -> Array | None:
        """Return C Σ (E max(x − knot, 0) − max(E x − knot, 0)), the expected KL of the gates."""
        rule = self.rule_for(function)
        if not isinstance(rule, _Gated):
            return None
        xp, total = namespace(mean), 0.0 * mean
        for knot in rule.places:
            rectified = ReLU().expectation(mean - knot, variance)
            total = total + self.sharpness * (rectified - xp.clip(mean - knot, min=0.0))
        return total

    def ruled(self, function: Any) -> Any:
        """Return a piecewise linear function, sigmoid or tanh by gates."""
        if function == LOG_NDTR:
            return _Bounded(function, 1 + self.margin_precision)
        kind = type(function)
        knots: Sequence[float] = (0.0,)
        if kind is LeakyReLU:
            lines: Sequence[Line] = ((function.negative_slope, 0), (1, 0))
        elif kind in _TWO:
            lines = _TWO[kind]
        elif kind in _THREE:
            knots, lines = _THREE[kind]
        elif kind is PiecewiseLinear and function.knots:
            knots, lines = function.knots, function.lines
        else:
            return function
        return _Gated(function, knots, lines, self.sharpness)


BOOK = VBP()
