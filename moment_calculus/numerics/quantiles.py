"""Compute quantiles and cumulative probabilities of distributions, by search or summation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import while_loop
from moment_calculus.numerics.special import constants, namespace, ndtri

FURTHEST = 1e30  # larger moments do not tell where the quantiles are
WIDER = 4.0  # factor by which a bracket grows
ROUNDS = 500  # most rounds of widening and halving a bracket
LEFT, RIGHT, HALVING, FAILED = 0, 1, 2, 3  # phases of a search
MAX_ELEMENTS = 2**13  # most elements in a round
MAX_ROUND = 32  # most counts in a round
MAX_COUNTS = 2**22


def normal_quantile(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles of Normals; the levels in (0, 1) broadcast to mean and variance."""
    return mean + variance**0.5 * ndtri(levels)


def inverse(
    increasing: Callable[[Array], Array],
    levels: Array,
    centre: Array,
    width: Array,
    bounds: tuple[Any, Any] = (-math.inf, math.inf),
    slack: Array | float = -1.0,
) -> Array:
    """Return where an increasing function takes the values ``levels``; NaN where it is NaN.

    A bracket around ``centre`` with half ``width`` is widened, then halved until the
    function is within ``slack`` of the levels, by default as far as its precision goes.
    """
    xp = namespace(levels)
    centre = xp.where(xp.abs(centre) < FURTHEST, centre, xp.zeros_like(centre))
    width = xp.where((width < FURTHEST) & (width > 0), width, xp.ones_like(width))
    lower, upper = (xp.zeros_like(centre) + bound for bound in bounds)

    # The function is called at this one place only, to save JAX's compile time.
    def step(search: _Search) -> _Search:
        x = xp.minimum(xp.maximum(search.place(xp, centre), lower), upper)
        return search.narrowed(xp, x, increasing(x) - levels, slack, (x <= lower, x >= upper))

    zero = xp.zeros_like(centre)
    start = _Search(zero, zero, -width, zero, constants(0.0, centre))
    found = while_loop(lambda search: search.is_open(xp), step, start)
    return xp.where(found.phase == FAILED, math.nan, found.middle())


class _Search(NamedTuple):
    """A search for a bracket: first for its lower end, then for the upper; then it is halved."""

    low: Array
    high: Array
    step: Array  # from the centre to the next place
    phase: Array  # LEFT, RIGHT, HALVING or FAILED
    rounds: Array

    def middle(self) -> Array:
        return self.low + (self.high - self.low) / 2

    def is_open(self, xp: Any) -> Array:
        """Return whether any bracket is incomplete or wide, with rounds left."""
        size = xp.maximum(xp.abs(self.low), xp.abs(self.high))
        wide = self.high - self.low > 4 * float(xp.finfo(size.dtype).eps) * size
        busy = (self.phase < HALVING) | ((self.phase == HALVING) & wide)
        return xp.any(busy) & (self.rounds < ROUNDS)

    def place(self, xp: Any, centre: Array) -> Array:
        """Return where to evaluate the function next."""
        return xp.where(self.phase < HALVING, centre + self.step, self.middle())

    def narrowed(
        self, xp: Any, x: Array, excess: Array, slack: Array | float, at_bounds: tuple
    ) -> _Search:
        """Return the search after the function's ``excess`` over the levels at x is known."""
        below, above = (excess < 0) | at_bounds[0], (excess >= 0) | at_bounds[1]
        left, right = self.phase == LEFT, self.phase == RIGHT
        halving = self.phase == HALVING
        got_low, got_high = left & below, right & above
        close = halving & (xp.abs(excess) <= slack)
        failed = xp.isnan(excess) & ~at_bounds[0] & ~at_bounds[1]
        phase = xp.where(got_low | got_high, self.phase + 1, self.phase)
        wider = xp.where(left | right, WIDER * self.step, self.step)
        return _Search(
            xp.where(got_low | (halving & below) | close, x, self.low),
            xp.where(got_high | (halving & ~below) | close, x, self.high),
            xp.where(got_low, xp.abs(self.step), wider),
            xp.where(failed, FAILED + 0 * phase, phase),
            self.rounds + 1,
        )


def count_quantile(
    probability: Callable[[Array], Array],
    levels: Array,
    mean: Array,
    variance: Array,
    bounds: tuple[Any, Any] = (0, math.inf),
) -> Array:
    """Return the smallest counts [*shape] whose cumulative probabilities reach ``levels``.

    ``probability`` maps counts [counts, *shape] to probabilities. Where rounding keeps
    their sum below a level, the result is the bound of Cantelli's inequality. The work is
    proportional to the largest count; the result is NaN beyond four millions, or where a
    probability is NaN.
    """
    xp = namespace(levels)
    first, last = bounds
    size = counts_per_round(tuple(levels.shape))
    ramp = constants(np.arange(size).reshape((-1,) + (1,) * levels.ndim), levels)
    bound = 1 + xp.floor(mean + (variance * levels / (1 - levels)) ** 0.5)
    limit = xp.minimum(bound, last + xp.zeros_like(bound))
    is_finite = xp.isfinite(mean + variance)

    def condition(state: tuple) -> Array:
        start, _, quantile = state
        open_ = is_finite & xp.isnan(quantile) & (start <= limit) & (start - first < MAX_COUNTS)
        return xp.any(open_)

    def body(state: tuple) -> tuple:
        start, total, quantile = state
        counts = start + ramp
        # A count beyond the largest is replaced by the largest, which comes before it.
        within = xp.minimum(counts + 0 * levels, last + 0 * levels)
        sums = total + xp.cumulative_sum(probability(within), axis=0)
        reached = sums >= levels
        hit = xp.min(xp.where(reached, within, math.inf), axis=0)
        quantile = xp.where(xp.isnan(quantile) & xp.isfinite(hit), hit, quantile)
        return start + size, sums[-1, ...], quantile

    zero = 0 * levels
    state = (constants(float(first), levels), zero, zero + math.nan)
    start, total, quantile = while_loop(condition, body, state)
    short = xp.isnan(quantile) & (start > limit) & ~xp.isnan(total)
    return xp.where(short, limit, quantile)


def count_cumulative(
    probability: Callable[[Array], Array], values: Array, bounds: tuple[Any, Any] = (0, math.inf)
) -> Array:
    """Return the probabilities [*shape] of counts up to real ``values`` [*shape], by summation.

    ``probability`` maps counts [counts, *shape] to probabilities. The work is
    proportional to the largest value; the result is NaN where a value is, or exceeds four
    millions but not the bound.
    """
    xp = namespace(values)
    first, last = float(bounds[0]), bounds[1] + xp.zeros_like(values)
    summed, many = (values >= first) & (values < last), values - first >= MAX_COUNTS
    top = xp.where(summed & ~many, xp.floor(values), first - 1)
    size = counts_per_round(tuple(values.shape))
    ramp = constants(np.arange(size).reshape((-1,) + (1,) * values.ndim), values)

    def condition(state: tuple) -> Array:
        return xp.any(state[0] <= top)

    def body(state: tuple) -> tuple:
        counts = state[0] + ramp + xp.zeros_like(values)
        probabilities = probability(xp.minimum(counts, last))
        return state[0] + size, state[1] + xp.sum(
            xp.where(counts <= top, probabilities, 0.0), axis=0
        )

    start = constants(first, values), xp.zeros_like(values)
    _, total = while_loop(condition, body, start)
    cumulative = xp.where(values >= last, 1.0, xp.clip(total, max=1.0))
    return xp.where(xp.isnan(values) | (summed & many), math.nan, cumulative)


def counts_per_round(shape: tuple[int, ...]) -> int:
    """Return how many counts are evaluated together for elements of a shape."""
    return min(max(MAX_ELEMENTS // max(math.prod(shape), 1), 1), MAX_ROUND)


def class_quantile(probabilities: Array, levels: Array) -> Array:
    """Return the first classes, as floats, whose cumulative probabilities reach ``levels``."""
    xp = namespace(probabilities)
    sums = xp.cumulative_sum(probabilities, axis=-1)[..., :-1]
    return xp.sum(xp.astype(sums < levels[..., None], probabilities.dtype), axis=-1)


def class_cumulative(probabilities: Array, values: Array) -> Array:
    """Return the probabilities of classes up to ``values``; NaN stays NaN."""
    xp = namespace(probabilities)
    classes = constants(np.arange(probabilities.shape[-1]), probabilities)
    cumulative = xp.sum(xp.where(classes <= values[..., None], probabilities, 0.0), axis=-1)
    last = xp.where(values >= probabilities.shape[-1] - 1, 1.0, cumulative)
    return xp.where(xp.isnan(values), math.nan, last)


def empirical_quantile(values: Array, levels: np.ndarray) -> Array:
    """Return quantiles [levels, ...] of points [points, ...], linear between them."""
    xp, count = namespace(values), values.shape[0]
    ordered = xp.sort(values, axis=0)
    # Hazen's rule: the i-th of n points is the quantile at (i − ½)/n.
    places = np.clip(levels * count - 0.5, 0, count - 1)
    low = np.floor(places).astype(int)
    high = np.minimum(low + 1, count - 1)
    share = constants((places - low).reshape((-1,) + (1,) * (values.ndim - 1)), values)
    lower, upper = (xp.stack([ordered[i, ...] for i in part]) for part in (low, high))
    return lower + share * (upper - lower)
