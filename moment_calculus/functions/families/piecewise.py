"""Piecewise linear functions with any knots, with or without jumps: abs, hardtanh, softshrink.

Around the mean of x, f is a line plus one-sided rectifiers r = (±(x − k))₊
that point away from the mean: tails, so that nothing cancels where f is flat at the mean.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.base import (
    Activation,
    Array,
    clipped_correlation,
    normal_hermite,
    over_pairs,
)
from moment_calculus.functions.integrated import in_double
from moment_calculus.numerics.arrays import constants, namespace, safe_scale
from moment_calculus.numerics.execution import together
from moment_calculus.numerics.normal import pdf, rectifier_covariance, tail_moments


class Corner(NamedTuple):
    """A place where the function bends or jumps."""

    knot: float
    bend: float  # change of slope
    jump: float


class Tail(NamedTuple):
    """A corner at t standard deviations from the mean, as a rectifier away from the mean."""

    bend: Any  # change of slope · σ
    jump: Any
    side: Any  # 1 where the corner is above the mean, else −1
    distance: Any  # t
    density: Any  # φ(t)
    t0: Any  # tail moments at t
    t1: Any
    t2: Any


@dataclass(frozen=True)
class PiecewiseLinear(Activation):
    """A piecewise linear function, given by knots, slopes and jumps.

    In double precision moments have relative errors of 1e-6 if neighbouring knots are
    at least 1e-3 σ apart. Covariances of pairs, sums of rectifier covariances with errors
    of 4e-9, are as accurate if the knots are at least 0.1 σ apart; else their errors
    are 1e-8 σ_x σ_y.

    Args:
        knots: where f bends or jumps, ascending.
        slopes: slope of every piece, one more than knots.
        origin: f at the left end of the first knot; at zero if there is none.
        jumps: by how much f jumps at every knot; none by default.
        name: name of the function.
    """

    knots: tuple[float, ...] = ()
    slopes: tuple[float, ...] = (1.0,)
    origin: float = 0.0
    jumps: tuple[float, ...] = ()
    name: str = field(default="piecewise_linear", compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError unless knots ascend and slopes and jumps match in number."""
        counts = {len(self.slopes) - 1, len(self.jumps or self.knots), len(self.knots)}
        if len(counts) > 1 or list(self.knots) != sorted(set(self.knots)):
            raise ValueError(
                f"knots={self.knots} have to ascend, with one slope more ({self.slopes}) and a "
                f"jump each, or none ({self.jumps})"
            )

    @property
    def _corners(self) -> list[Corner]:
        """Return the corner at every knot."""
        jumps = self.jumps or (0.0,) * len(self.knots)
        bends = [
            after - before for before, after in zip(self.slopes, self.slopes[1:], strict=False)
        ]
        return [Corner(*corner) for corner in zip(self.knots, bends, jumps, strict=True)]

    @property
    def _left_limits(self) -> list[float]:
        """Return f at the left end of every knot."""
        values = [self.origin]
        for i in range(1, len(self.knots)):
            jump = self.jumps[i - 1] if self.jumps else 0.0
            gap = self.knots[i] - self.knots[i - 1]
            values.append(values[-1] + jump + self.slopes[i] * gap)
        return values

    @property
    def clips(self) -> bool:
        """Whether it is the identity between its bounds."""
        plain = set(self.slopes) <= {0.0, 1.0} and not self.jumps
        return plain and self.origin == self.knots[0]

    @property
    def bounds(self) -> tuple[float, float]:  # type: ignore[override]
        """Bounds of f, from the values at the knots and the outer slopes."""
        if not self.knots:
            return -math.inf, math.inf
        right_limits = [
            value + jump
            for value, (_, _, jump) in zip(self._left_limits, self._corners, strict=True)
        ]
        limits = [*self._left_limits, *right_limits]
        is_unbounded_below = self.slopes[0] > 0 or self.slopes[-1] < 0
        is_unbounded_above = self.slopes[0] < 0 or self.slopes[-1] > 0
        return (
            -math.inf if is_unbounded_below else min(limits),
            math.inf if is_unbounded_above else max(limits),
        )

    @property
    def lines(self) -> list[tuple[float, float]]:
        """Slope and value at zero of the line of every piece."""
        return [(s, y - s * k) for k, y, s in self._starts]

    @property
    def _starts(self) -> list[tuple[float, float, float]]:
        """Return a place of every piece, f there, and the slope."""
        knots, values = (self.knots or (0.0,)), self._left_limits
        starts = [(knots[0], values[0], self.slopes[0])]
        for knot, value, slope, (_, _, jump) in zip(
            knots, values, self.slopes[1:], self._corners, strict=False
        ):
            starts.append((knot, value + jump, slope))
        return starts

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return solutions x of f(x) = level on the line of every non-flat piece, with |dx/df|."""
        return tuple((k + (level - y) / s, 1 / abs(s)) for k, y, s in self._starts if s)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return self._value_and_slope(x)[0]

    def _value_and_slope(self, x: Array) -> tuple[Array, Array]:
        """Return f and its slope at x."""
        xp = namespace(x)
        first = self.knots[0] if self.knots else 0.0
        value, slope = self.origin + self.slopes[0] * (x - first), xp.zeros_like(x) + self.slopes[0]
        pieces = zip(self._corners, self._left_limits, self.slopes[1:], strict=True)
        for (knot, _, jump), left_limit, piece_slope in pieces if self.knots else ():
            beyond = x > knot
            value = xp.where(beyond, left_limit + jump + piece_slope * (x - knot), value)
            slope = xp.where(beyond, xp.zeros_like(x) + piece_slope, slope)
        return value, slope

    def _tails(self, mean: Array, variance: Array) -> list[Tail]:
        """Return the tail of every corner."""
        if not self.knots:
            return []
        xp, scale = namespace(mean), safe_scale(variance)
        knots = constants(np.reshape(self.knots, (-1, *[1] * len(mean.shape))), mean)
        side = xp.where(knots < mean, -xp.ones_like(mean), xp.ones_like(mean))
        t = side * (knots - mean) / scale
        tails = [xp.where(variance > 0, part, 0 * part) for part in tail_moments(t)]
        density = pdf(t)
        return [
            Tail(bend * scale, jump, *(part[i] for part in (side, t, density, *tails)))
            for i, (_, bend, jump) in enumerate(self._corners)
        ]

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Exact mean and variance."""
        return in_double(self._moments)(mean, variance)

    def _moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        value, slope = self._value_and_slope(mean)
        slope = slope * safe_scale(variance)
        tails = self._tails(mean, variance)
        mean_shift, second_moment = 0.0 * mean, slope * slope
        for i, (bend, jump, side, _, density, reach, first, _) in enumerate(tails):
            mean_shift = mean_shift + bend * first + side * jump * reach
            second_moment = second_moment + 2 * slope * (bend * side * reach + jump * density)
            second_moment = second_moment + sum(
                self._second_moment_share(tails[j], tails[i], i == j) for j in range(i + 1)
            )
        result = namespace(mean).clip(second_moment - mean_shift * mean_shift, min=0.0)
        return value + mean_shift, namespace(mean).where(variance > 0, result, 0 * result)

    def _second_moment_share(self, left: Tail, right: Tail, same: bool) -> Array:
        """Return a pair of corners' share of E[f²]; zero on different sides of the mean."""
        xp = namespace(right.side)
        ahead = right.side > 0  # then the right one is the outer one
        bend, jump, side, _, _, zeroth, first, second = (
            xp.where(ahead, far, near)
            for near, far in zip(_arrays(left), _arrays(right), strict=True)
        )
        inner, step = (
            xp.where(ahead, near, far)
            for near, far in zip(_arrays(left)[:2], _arrays(right)[:2], strict=True)
        )
        gap = xp.abs(right.distance - left.distance)
        smooth = inner * bend * (second + gap * first)
        mixed = side * (inner * jump * (first + gap * zeroth) + step * bend * first)
        both = smooth + mixed + step * jump * zeroth
        return both if same else xp.where(left.side == right.side, 2 * both, 0 * both)

    def gain(self, mean: Array, variance: Array) -> Array:
        """Expected derivative, with the density of x at the jumps."""
        return in_double(self._gain)(mean, variance)[0]

    def _gain(self, mean: Array, variance: Array) -> tuple[Array]:
        scale, slope = safe_scale(variance), self._value_and_slope(mean)[1]
        for bend, jump, side, _, density, reach, *_ in self._tails(mean, variance):
            slope = slope + (side * bend * reach + jump * density) / scale
        return (slope,)

    def hermite(self, mean: Array, variance: Array, order: int) -> Array:
        """Hermite coefficients: sums over the corners of those of the rectifier and the step."""
        return in_double(lambda m, v: self._hermite(m, v, order))(mean, variance)[0]

    def _hermite(self, mean: Array, variance: Array, order: int) -> tuple[Array]:
        scale, xp = safe_scale(variance), namespace(mean)
        first = (scale * self._gain(mean, variance)[0])[None]
        n = np.reshape(np.arange(2.0, order + 1), (-1, *(1,) * mean.ndim))
        bends, jumps = (-1) ** n / np.sqrt(n * (n - 1)), (-1) ** n / np.sqrt(n)
        rest = xp.zeros_like(mean) + constants(0 * n, mean)
        for knot, bend, jump in self._corners:
            offset = (mean - knot) / scale
            terms = together(normal_hermite(offset, pdf(offset), order))
            rest = rest + bend * scale * (terms[:-1] * constants(bends, mean))
            if jump:
                rest = rest - jump * (terms[1:] * constants(jumps, mean))
        return (xp.concat([first, rest], axis=0),)

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Exact covariance of every pair, for a continuous f."""
        if any(self.jumps):
            return NotImplemented
        return in_double(self._pairs)(mean, variance, covariance)[0]

    def _pairs(self, mean: Array, variance: Array, covariance: Array) -> tuple[Array]:
        return (over_pairs(self._pair, (mean, variance), covariance),)

    def _pair(self, x: tuple[Array, Array], y: tuple[Array, Array], covariance: Array) -> Array:
        xp = namespace(covariance)
        rho = clipped_correlation(covariance, 1 / safe_scale(x[1]) * (1 / safe_scale(y[1])))
        line_x, line_y = self._value_and_slope(x[0])[1], self._value_and_slope(y[0])[1]
        total = covariance * (line_x * self._gain(*y)[0] + line_y * self._gain(*x)[0])
        total = total - covariance * line_x * line_y
        if not self.knots:
            return total
        both = list(itertools.product(self._tails(*x), self._tails(*y)))
        bends = xp.stack([left.bend * right.bend for left, right in both])
        sides = xp.stack([left.side * right.side for left, right in both])
        near, far = (xp.stack([-pair[i].distance for pair in both]) for i in (0, 1))
        return total + xp.sum(bends * rectifier_covariance(near, far, sides * rho), axis=0)


def _arrays(tail: Tail) -> list[Array]:
    """Return the parts of a corner, with its jump as an array."""
    return [tail.bend, tail.jump + 0 * tail.bend, *tail[2:]]


def clamp(
    low: float | None = None, high: float | None = None, name: str = "clamp"
) -> PiecewiseLinear:
    """Return the function that clips x to the bounds; None leaves a side open."""
    if low is None:
        if high is None:
            return PiecewiseLinear(name=name)
        return PiecewiseLinear((high,), (1.0, 0.0), high, name=name)
    if high is None:
        return PiecewiseLinear((low,), (0.0, 1.0), low, name=name)
    if low >= high:  # as in torch: the upper bound everywhere
        return PiecewiseLinear((0.0,), (0.0, 0.0), high, name=name)
    return PiecewiseLinear((low, high), (0.0, 1.0, 0.0), low, name=name)


def softshrink(threshold: float = 0.5) -> PiecewiseLinear:
    """Return x − λ above λ, x + λ below −λ, else 0, for λ = ``threshold`` > 0."""
    return PiecewiseLinear((-threshold, threshold), (1.0, 0.0, 1.0), name="softshrink")


def hardshrink(threshold: float = 0.5) -> PiecewiseLinear:
    """Return the function x beyond ±λ, else 0, for λ = ``threshold`` > 0."""
    knots, jumps = (-threshold, threshold), (threshold, threshold)
    return PiecewiseLinear(knots, (1.0, 0.0, 1.0), -threshold, jumps, name="hardshrink")


def threshold(level: float, value: float) -> PiecewiseLinear:
    """Return the function x above a level, else ``value``."""
    return PiecewiseLinear((level,), (0.0, 1.0), value, (level - value,), name="threshold")
