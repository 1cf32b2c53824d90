"""Compute entropies from probabilities, or from densities by quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import fold, while_loop
from moment_calculus.numerics.quadrature import POINTS, legendre
from moment_calculus.numerics.quantiles import MAX_COUNTS, counts_per_round
from moment_calculus.numerics.special import constants, expit, namespace

VALUES = 2**9  # values of a density that are computed together
MASS_TOLERANCE = 1e-4  # error of the mass from which on the panels do not resolve a density
TAIL_MASS = 1e-4  # largest mass left at the end of a sum
TAIL_TERM = 1e-9  # largest −p log p times the count there


def surprisal(probability: Array) -> Array:
    """Return −p log p in nats, zero where p is not positive; NaN stays."""
    xp = namespace(probability)
    nothing = probability <= 0
    return xp.where(nothing, 0.0, -probability * xp.log(xp.where(nothing, 1.0, probability)))


def surprisal_of_log(log_probability: Array) -> Array:
    """Return −p log p from log p, zero where the logarithm is −∞ or NaN."""
    xp = namespace(log_probability)
    is_positive = log_probability > -math.inf
    finite = xp.where(is_positive, log_probability, 0.0)
    return xp.where(is_positive, -xp.exp(finite) * finite, 0.0)


def class_entropy(probabilities: Array) -> Array:
    """Return the entropy in nats of probabilities [..., classes]."""
    return namespace(probabilities).sum(surprisal(probabilities), axis=-1)


def binary_entropy(probability: Array) -> Array:
    """Return the entropy in nats of an event with a probability [...]."""
    return surprisal(probability) + surprisal(1 - probability)


def density_entropy(
    log_density: Callable[[Array], Array],
    edges: Array,
    bounds: tuple[Any, Any] = (-math.inf, math.inf),
) -> Array:
    """Return −∫ p log p [*shape] in nats, by Gauss-Legendre on panels between ``edges``.

    All of the mass is between the edges [edges, *shape], at most a tenth of it between
    two of them. ``log_density`` maps values [values, *shape] to log densities. The result
    is NaN where the mass is wrong by 1e-4: the density is narrower than the panels, or
    has jumps or atoms.
    """
    xp = namespace(edges)
    edges, stretched = _coordinates(xp.sort(edges, axis=0), bounds)
    shape = tuple(edges.shape[1:])
    size = max(VALUES // (POINTS * max(math.prod(shape), 1)), 1)
    size = min(size, edges.shape[0] - 1)
    empty = -(edges.shape[0] - 1) % size  # empty panels at the end make all groups equally large
    edges = xp.concat([edges, *[edges[-1:, ...]] * empty], axis=0)
    low, high = (xp.reshape(part, (-1, size, *shape)) for part in (edges[:-1, ...], edges[1:, ...]))
    places, weights = (
        constants(part.reshape((-1, 1) + (1,) * len(shape)), edges) for part in legendre(POINTS)
    )

    def body(total: Array, ends: tuple[Array, Array]) -> Array:
        half = (ends[1] - ends[0]) / 2
        points = ends[0] + half * (1 + places)
        values, slopes = stretched(points)
        flat = xp.reshape(values, (POINTS * size, *shape))
        log_p = xp.reshape(log_density(flat), points.shape)
        # panels without width have no mass, whatever the density is
        log_p = xp.where(half > 0, xp.astype(log_p, half.dtype, copy=False), -math.inf)
        mass = half * weights * slopes
        parts = (xp.exp(log_p), surprisal_of_log(log_p))
        return total + xp.stack([xp.sum(mass * part, axis=(0, 1)) for part in parts])

    mass, entropy = fold(body, (low, high), xp.stack([0 * edges[0, ...]] * 2))
    return xp.where(xp.abs(mass - 1) < MASS_TOLERANCE, entropy, math.nan)


Stretched = Callable[[Array], tuple[Array, Array]]


def _coordinates(edges: Array, bounds: tuple[Any, Any]) -> tuple[Array, Stretched]:
    """Return edges in smooth coordinates, and the map from these to values and slopes."""
    # Tails become exponential, and densities that are infinite at a bound too: c + w sinh
    # t without bounds, b ± w exp t from one bound b, the logistic function of t between
    # two bounds.
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


def _distance(places: Array, bound: Any) -> Array:
    """Return the distance of places from a bound, kept positive despite rounding."""
    xp = namespace(places)
    info, bound = xp.finfo(places.dtype), bound + 0 * places
    least = 4 * float(info.eps) * xp.abs(bound) + float(info.smallest_normal)
    return xp.maximum(xp.abs(places - bound), least)


def sum_over_counts(
    terms: Callable[[Array], tuple[Array, Array]],
    mean: Array,
    variance: Array,
    bounds: tuple[Any, Any] = (0, math.inf),
) -> Array:
    """Return Σ t(k) [*shape] over all counts k, of terms that vanish with their probabilities.

    ``terms`` maps counts [counts, *shape] to their probabilities and terms. The sum ends
    at the bound of Cantelli's inequality for 1e-4, or earlier where the rest is
    negligible; the work is proportional to the largest count. NaN: no finite moments, or
    more than four million counts.
    """
    xp = namespace(mean)
    first, last = bounds
    size = counts_per_round(tuple(mean.shape))
    ramp = constants(np.arange(size).reshape((-1,) + (1,) * mean.ndim), mean)
    last = last + 0 * mean
    limit = xp.minimum(1 + xp.floor(mean + (variance / TAIL_MASS) ** 0.5), last)
    is_finite = xp.isfinite(mean + variance)

    def condition(state: tuple) -> Array:
        start, _, _, going = state
        return xp.any(going) & (start - first < MAX_COUNTS)

    def body(state: tuple) -> tuple:
        start, mass, total, going = state
        counts = start + ramp
        probability, term = terms(xp.minimum(counts + 0 * mean, last))
        inside = counts <= last
        mass = mass + xp.sum(xp.where(inside, probability, 0.0), axis=0)
        term = xp.where(inside, term, 0.0)
        rest = surprisal(probability[-1, ...]) * counts[-1, ...]
        ends = (counts[-1, ...] > mean) & (1 - mass < TAIL_MASS) & (rest < TAIL_TERM)
        ends = ends | (counts[-1, ...] >= limit) | xp.isnan(mass)
        return start + size, mass, total + xp.sum(term, axis=0), going & ~ends

    zero = 0 * mean
    state = (constants(float(first), mean), zero, zero, is_finite)
    _, mass, total, going = while_loop(condition, body, state)
    return xp.where(is_finite & ~going & ~xp.isnan(mass), total, math.nan)
