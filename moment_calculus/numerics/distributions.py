"""Quantiles, cumulative probabilities and entropies, by search, summation or quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import Array, constants, expit, namespace, ndtri
from moment_calculus.numerics.execution import fold, while_loop
from moment_calculus.numerics.quadrature import POINTS, legendre

MAX_MOMENT = 1e30  # larger moments do not tell where the quantiles are
BRACKET_GROWTH = 4.0  # factor by which a bracket grows
MAX_CHORDS = 24  # rounds after which a bracket is halved, whatever the chord says
MAX_SEARCH_ROUNDS = 500  # most rounds of widening and halving a bracket
LEFT, RIGHT, BISECTING, FAILED = 0, 1, 2, 3  # phases of a search
MAX_ELEMENTS = 2**13  # most elements in a round
MAX_COUNTS_PER_ROUND = 32  # most counts in a round
MAX_COUNTS = 2**22


def normal_quantile(mean: Array, variance: Array, levels: Array) -> Array:
    """Return quantiles of Normals; the levels in (0, 1) broadcast to mean and variance."""
    return mean + variance**0.5 * ndtri(levels)


def invert_increasing(
    increasing: Callable[[Array], Array],
    levels: Array,
    centre: Array,
    half_width: Array,
    bounds: tuple[Any, Any] = (-math.inf, math.inf),
    slack: Array | float = -1.0,
    resolution: float = 0.0,
    continuous: bool = False,
) -> Array:
    """Return where an increasing function takes the values ``levels``; NaN where it is NaN.

    A bracket around ``centre`` of half-width ``half_width`` is widened, then halved until the
    function is within ``slack`` of the levels, or the bracket as narrow as ``resolution``; by
    default as far as the precision goes. The normal quantiles of a ``continuous`` distribution
    function are almost a straight line: the bracket is divided where their chord is zero, until
    they are within 1e-10 of those of the levels, or 2e-6 in single precision.
    """
    xp = namespace(levels)
    centre = xp.where(xp.abs(centre) < MAX_MOMENT, centre, xp.zeros_like(centre))
    is_usable = (half_width < MAX_MOMENT) & (half_width > 0)
    half_width = xp.where(is_usable, half_width, xp.ones_like(half_width))
    lower, upper = (xp.zeros_like(centre) + bound for bound in bounds)
    targets = _deviations(levels) if continuous else levels

    # The function is called only here, to save JAX's compile time.
    def step(search: _Search) -> _Search:
        x = xp.minimum(xp.maximum(search.next_point(xp, centre), lower), upper)
        cumulative = increasing(x)
        excess, close = cumulative - levels, xp.abs(cumulative - levels) <= slack
        gap = 0 * excess  # without gaps there is no chord, and the bracket is halved
        if continuous:
            excess = gap = _deviations(xp.astype(cumulative, levels.dtype)) - targets
            close = close | is_level(cumulative, levels)
        return search.update(xp, x, excess, gap, close, (x <= lower, x >= upper))

    zero = xp.zeros_like(centre)
    start = _Search(zero, zero, -half_width, zero, constants(0.0, centre), zero, zero, zero)
    search = while_loop(lambda state: state.is_open(xp, resolution), step, start)
    return xp.where(search.phase == FAILED, math.nan, search.middle())


def is_level(actual: Array, levels: Array) -> Array:
    """Tell where normal quantiles of found levels are those of the levels, but for rounding."""
    xp = namespace(actual)
    least = 2e-6 if float(xp.finfo(actual.dtype).eps) > 1e-10 else 1e-10
    return xp.abs(_deviations(xp.astype(actual, levels.dtype)) - _deviations(levels)) < least


def _deviations(levels: Array) -> Array:
    """Return normal quantiles, finite at levels of zero and one."""
    limits = namespace(levels).finfo(levels.dtype)
    smallest = float(limits.smallest_normal)
    return ndtri(namespace(levels).clip(levels, min=smallest, max=1 - float(limits.eps)))


class _Search(NamedTuple):
    """State of a bracket search: the lower end first, then the upper, then inside."""

    low: Array
    high: Array
    step: Array  # from the centre to the next point
    phase: Array  # LEFT, RIGHT, BISECTING or FAILED
    rounds: Array
    low_gap: Array  # how far the function is from its level at the ends
    high_gap: Array
    side: Array  # at which end the last point was put, −1 or 1

    def middle(self) -> Array:
        return self.low + (self.high - self.low) / 2

    def is_open(self, xp: Any, resolution: float) -> Array:
        """Return whether any bracket is incomplete or wide, with rounds left."""
        size = xp.maximum(xp.abs(self.low), xp.abs(self.high))
        precision = 4 * float(xp.finfo(size.dtype).eps) * size
        wide = self.high - self.low > xp.clip(precision, min=resolution)
        busy = (self.phase < BISECTING) | ((self.phase == BISECTING) & wide)
        return xp.any(busy) & (self.rounds < MAX_SEARCH_ROUNDS)

    def next_point(self, xp: Any, centre: Array) -> Array:
        """Return where to evaluate the function next."""
        return xp.where(self.phase < BISECTING, centre + self.step, self._inside(xp))

    def _inside(self, xp: Any) -> Array:
        """Return where the chord is zero in the first rounds, then the middle."""
        width, rise = self.high - self.low, self.high_gap - self.low_gap
        share = -self.low_gap / xp.where(rise > 0, rise, 1.0)
        usable = (rise > 0) & (share > 0) & (share < 1) & (self.rounds < MAX_CHORDS)
        return self.low + width * xp.where(usable, share, 0.5)

    def update(
        self, xp: Any, x: Array, excess: Array, gap: Array, close: Array, at_bounds: tuple
    ) -> _Search:
        """Return the next state, given the function's excess over the levels at x."""
        below, above = (excess < 0) | at_bounds[0], (excess >= 0) | at_bounds[1]
        left, right = self.phase == LEFT, self.phase == RIGHT
        bisecting = self.phase == BISECTING
        got_low, got_high = left & below, right & above
        close = bisecting & close
        failed = xp.isnan(excess) & ~at_bounds[0] & ~at_bounds[1]
        phase = xp.where(got_low | got_high, self.phase + 1, self.phase)
        wider = xp.where(left | right, BRACKET_GROWTH * self.step, self.step)
        lower, higher = got_low | (bisecting & below), got_high | (bisecting & ~below)
        # An end that stays twice counts half, so that the other moves too (the Illinois method).
        side = xp.where(below, -xp.ones_like(x), xp.ones_like(x))
        fading = xp.where(bisecting & (side == self.side), 0.5, 1.0)
        return _Search(
            xp.where(lower | close, x, self.low),
            xp.where(higher | close, x, self.high),
            xp.where(got_low, xp.abs(self.step), wider),
            xp.where(failed, FAILED + 0 * phase, phase),
            self.rounds + 1,
            xp.where(lower, gap, self.low_gap * fading),
            xp.where(higher, gap, self.high_gap * fading),
            xp.where(bisecting, side, self.side),
        )


def count_quantile(
    probability: Callable[[Array], Array],
    levels: Array,
    mean: Array,
    variance: Array,
    bounds: tuple[Any, Any] = (0, math.inf),
) -> Array:
    """Return the smallest counts whose cumulative probabilities reach ``levels``.

    Levels are [levels, ...] or [...], to broadcast with mean and variance [*shape];
    ``probability`` maps counts [counts, *shape] to probabilities. Where rounding keeps
    their sum below a level, the result is the bound of Cantelli's inequality. The work is
    proportional to the largest count; the result is NaN beyond four million, or where a
    probability is NaN.
    """
    xp = namespace(levels)
    first, last = bounds
    size = counts_per_round(tuple(mean.shape))
    offsets = constants(np.arange(size).reshape((-1,) + (1,) * mean.ndim), mean)
    levels = levels + 0 * mean
    one = (1,) * (levels.ndim - mean.ndim)  # the axis of levels, for sums [counts, *shape]
    bound = 1 + xp.floor(mean + (variance * levels / (1 - levels)) ** 0.5)
    limit = xp.minimum(bound, last + xp.zeros_like(bound))
    is_finite = xp.isfinite(mean + variance)

    def condition(state: tuple) -> Array:
        start, _, quantile = state
        is_pending = is_finite & xp.isnan(quantile) & (start <= limit)
        return xp.any(is_pending & (start - first < MAX_COUNTS))

    def body(state: tuple) -> tuple:
        start, total, quantile = state
        counts = start + offsets
        # A count beyond the largest is replaced by the largest, which comes before it.
        within = xp.minimum(counts + 0 * mean, last + 0 * mean)
        sums = total + xp.cumulative_sum(probability(within), axis=0)
        every = (size, *one, *mean.shape)
        reached = xp.reshape(sums, every) >= levels
        hit = xp.min(xp.where(reached, xp.reshape(within, every), math.inf), axis=0)
        quantile = xp.where(xp.isnan(quantile) & xp.isfinite(hit), hit, quantile)
        return start + size, sums[-1, ...], quantile

    state = (constants(float(first), mean), 0 * mean, 0 * levels + math.nan)
    start, total, quantile = while_loop(condition, body, state)
    is_exhausted = xp.isnan(quantile) & (start > limit) & ~xp.isnan(total)
    return xp.where(is_exhausted, limit, quantile)


def count_cumulative(
    probability: Callable[[Array], Array], values: Array, bounds: tuple[Any, Any] = (0, math.inf)
) -> Array:
    """Return the probabilities [*shape] of counts up to real ``values`` [*shape], by summation.

    ``probability`` maps counts [counts, *shape] to probabilities. The work is
    proportional to the largest value; the result is NaN where a value is, or exceeds four
    million but not the bound.
    """
    xp = namespace(values)
    first, last = float(bounds[0]), bounds[1] + xp.zeros_like(values)
    is_inside, is_too_large = (values >= first) & (values < last), values - first >= MAX_COUNTS
    top = xp.where(is_inside & ~is_too_large, xp.floor(values), first - 1)
    size = counts_per_round(tuple(values.shape))
    offsets = constants(np.arange(size).reshape((-1,) + (1,) * values.ndim), values)

    def condition(state: tuple) -> Array:
        return xp.any(state[0] <= top)

    def body(state: tuple) -> tuple:
        counts = state[0] + offsets + xp.zeros_like(values)
        probabilities = probability(xp.minimum(counts, last))
        return state[0] + size, state[1] + xp.sum(
            xp.where(counts <= top, probabilities, 0.0), axis=0
        )

    start = constants(first, values), xp.zeros_like(values)
    _, total = while_loop(condition, body, start)
    cumulative = xp.where(values >= last, 1.0, xp.clip(total, max=1.0))
    return xp.where(xp.isnan(values) | (is_inside & is_too_large), math.nan, cumulative)


def counts_per_round(shape: tuple[int, ...]) -> int:
    """Return how many counts are evaluated together for elements of a shape."""
    return min(max(MAX_ELEMENTS // max(math.prod(shape), 1), 1), MAX_COUNTS_PER_ROUND)


def class_quantile(probabilities: Array, levels: Array) -> Array:
    """Return the first classes (as floats) whose cumulative probability reaches the levels."""
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
    positions = np.clip(levels * count - 0.5, 0, count - 1)
    low = np.floor(positions).astype(int)
    high = np.minimum(low + 1, count - 1)
    share = constants((positions - low).reshape((-1,) + (1,) * (values.ndim - 1)), values)
    lower, upper = (xp.stack([ordered[i, ...] for i in part]) for part in (low, high))
    return lower + share * (upper - lower)


# ---------------------------------------------------------------------------------------------
# Entropies, from probabilities or from densities


MAX_DENSITY_VALUES = 2**9  # values of a density that are computed together
MASS_TOLERANCE = 1e-4  # error of the mass from which on the panels do not resolve a density
TAIL_MASS = 1e-4  # largest mass left at the end of a sum
TAIL_TERM = 1e-9  # largest −p log p times the count there


def entropy_term(probability: Array) -> Array:
    """Return −p log p in nats, zero where p is not positive; NaN stays."""
    xp = namespace(probability)
    is_zero = probability <= 0
    return xp.where(is_zero, 0.0, -probability * xp.log(xp.where(is_zero, 1.0, probability)))


def entropy_term_from_log(log_probability: Array) -> Array:
    """Return −p log p from log p, zero where the logarithm is −∞ or NaN."""
    xp = namespace(log_probability)
    is_positive = log_probability > -math.inf
    finite = xp.where(is_positive, log_probability, 0.0)
    return xp.where(is_positive, -xp.exp(finite) * finite, 0.0)


def class_entropy(probabilities: Array) -> Array:
    """Return the entropy in nats of probabilities [..., classes]."""
    return namespace(probabilities).sum(entropy_term(probabilities), axis=-1)


def binary_entropy(probability: Array) -> Array:
    """Return the entropy in nats of an event with a probability [...]."""
    return entropy_term(probability) + entropy_term(1 - probability)


def density_entropy(
    log_density: Callable[[Array], Array],
    edges: Array,
    bounds: tuple[Any, Any] = (-math.inf, math.inf),
) -> Array:
    """Return −∫ p log p [*shape] in nats, by Gauss-Legendre on panels between ``edges``.

    All mass must lie between the first and last of ``edges`` [edges, *shape], at most a
    tenth of it between neighbours. ``log_density`` maps values [values, *shape] to log
    densities. The result is NaN where the mass is wrong by 1e-4: the density is narrower
    than the panels, or has jumps or atoms.
    """
    xp = namespace(edges)
    edges, to_values = _coordinates(xp.sort(edges, axis=0), bounds)
    shape = tuple(edges.shape[1:])
    size = max(MAX_DENSITY_VALUES // (POINTS * max(math.prod(shape), 1)), 1)
    size = min(size, edges.shape[0] - 1)
    empty = -(edges.shape[0] - 1) % size  # empty panels at the end make all groups equally large
    edges = xp.concat([edges, *[edges[-1:, ...]] * empty], axis=0)
    low, high = (xp.reshape(part, (-1, size, *shape)) for part in (edges[:-1, ...], edges[1:, ...]))
    nodes, weights = (
        constants(part.reshape((-1, 1) + (1,) * len(shape)), edges) for part in legendre(POINTS)
    )

    def body(total: Array, ends: tuple[Array, Array]) -> Array:
        half = (ends[1] - ends[0]) / 2
        points = ends[0] + half * (1 + nodes)
        values, jacobian = to_values(points)
        flat = xp.reshape(values, (POINTS * size, *shape))
        log_p = xp.reshape(log_density(flat), points.shape)
        # panels without width have no mass, whatever the density is
        log_p = xp.where(half > 0, xp.astype(log_p, half.dtype, copy=False), -math.inf)
        mass = half * weights * jacobian
        parts = (xp.exp(log_p), entropy_term_from_log(log_p))
        return total + xp.stack([xp.sum(mass * part, axis=(0, 1)) for part in parts])

    mass, entropy = fold(body, (low, high), xp.stack([0 * edges[0, ...]] * 2))
    return xp.where(xp.abs(mass - 1) < MASS_TOLERANCE, entropy, math.nan)


CoordinateMap = Callable[[Array], tuple[Array, Array]]


def _coordinates(edges: Array, bounds: tuple[Any, Any]) -> tuple[Array, CoordinateMap]:
    """Return edges in smooth coordinates, and the map to values and their derivative."""
    # In these coordinates tails, and densities infinite at a bound, decay exponentially: the
    # values are c + w sinh t without bounds, b ± w exp t from one bound b, and the logistic
    # function of t between two bounds.
    xp, (low, high) = namespace(edges), bounds
    is_low, is_high = (not isinstance(end, int | float) or math.isfinite(end) for end in bounds)
    centre = edges[edges.shape[0] // 2, ...]
    if is_low and is_high:
        below, above = _distance(edges, low), _distance(edges, high)

        def logistic(t: Array) -> tuple[Array, Array]:
            share = expit(t)
            return low + (high - low) * share, (high - low) * share * expit(-t)

        return xp.log(below) - xp.log(above), logistic
    if is_low or is_high:
        start, sign = (low, 1.0) if is_low else (high, -1.0)
        width = _distance(centre, start)
        distance = _distance(edges, start)

        def exponential(t: Array) -> tuple[Array, Array]:
            step = width * xp.exp(t)
            return start + sign * step, step

        return xp.sort(xp.log(distance / width), axis=0), exponential
    last = edges.shape[0] - 1
    width = (edges[last - last // 4, ...] - edges[last // 4, ...]) / 2
    width = xp.where(width > 0, width, 1.0)

    def hyperbolic(t: Array) -> tuple[Array, Array]:
        return centre + width * xp.sinh(t), width * xp.cosh(t)

    return xp.asinh((edges - centre) / width), hyperbolic


def _distance(points: Array, bound: Any) -> Array:
    """Return the distance of points from a bound, kept positive despite rounding."""
    xp = namespace(points)
    info, bound = xp.finfo(points.dtype), bound + 0 * points
    least = 4 * float(info.eps) * xp.abs(bound) + float(info.smallest_normal)
    return xp.maximum(xp.abs(points - bound), least)


def sum_over_counts(
    terms: Callable[[Array], tuple[Array, Array]],
    mean: Array,
    variance: Array,
    bounds: tuple[Any, Any] = (0, math.inf),
) -> Array:
    """Return Σ t(k) [*shape] over counts k, for terms that vanish where p(k) does.

    ``terms`` maps counts [counts, *shape] to their probabilities and terms. The sum ends
    at the bound of Cantelli's inequality for 1e-4, or earlier where the rest is
    negligible; the work is proportional to the largest count. NaN: no finite moments, or
    more than four million counts.
    """
    xp = namespace(mean)
    first, last = bounds
    size = counts_per_round(tuple(mean.shape))
    offsets = constants(np.arange(size).reshape((-1,) + (1,) * mean.ndim), mean)
    last = last + 0 * mean
    limit = xp.minimum(1 + xp.floor(mean + (variance / TAIL_MASS) ** 0.5), last)
    is_finite = xp.isfinite(mean + variance)

    def condition(state: tuple) -> Array:
        start, _, _, is_active = state
        return xp.any(is_active) & (start - first < MAX_COUNTS)

    def body(state: tuple) -> tuple:
        start, mass, total, is_active = state
        counts = start + offsets
        probability, term = terms(xp.minimum(counts + 0 * mean, last))
        inside = counts <= last
        mass = mass + xp.sum(xp.where(inside, probability, 0.0), axis=0)
        term = xp.where(inside, term, 0.0)
        rest = entropy_term(probability[-1, ...]) * counts[-1, ...]
        ends = (counts[-1, ...] > mean) & (1 - mass < TAIL_MASS) & (rest < TAIL_TERM)
        ends = ends | (counts[-1, ...] >= limit) | xp.isnan(mass)
        return start + size, mass, total + xp.sum(term, axis=0), is_active & ~ends

    zero = 0 * mean
    state = (constants(float(first), mean), zero, zero, is_finite)
    _, mass, total, is_active = while_loop(condition, body, state)
    return xp.where(is_finite & ~is_active & ~xp.isnan(mass), total, math.nan)
