"""Covariance of two activations of correlated Gaussians, by integration over what they share.

With independent standard normal w, e, e′ and signs as in ρ,

    x = μ_x + σ_x (√|ρ| w + √(1−|ρ|) e),    y = μ_y ± σ_y (√|ρ| w + √(1−|ρ|) e′)

have the correlation ρ, so that Cov(f(x), g(y)) = Cov(E[f(x)|w], E[g(y)|w]): one integral over w of
the activations' own moments, symmetric, and without a product of means to take off.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import recomputed
from moment_calculus.numerics.normal.bivariate import is_single
from moment_calculus.numerics.special import (
    constants,
    double,
    namespace,
    safe_scale,
    stop_gradient,
)

REACH = 14.0  # standard deviations of w that are integrated over
DEVIATIONS = (-REACH, -10.0, -7.0, -5.0, -3.5, -2.0, -0.7, 0.7, 2.0, 3.5, 5.0, 7.0, 10.0, REACH)
# Panels end at these distances from the knots: of the function's own scale, which is one, and of
# the deviation of what is not shared, which blurs the knots.
DISTANCES = (0.0, 0.7, 1.5, 3.0, 6.0, 12.0, 20.0, 36.0)
BLURS = (1.5, 4.0, 9.0)
POINTS = {True: 6, False: 10}  # of Gauss–Legendre in each panel, in single and double precision
CHUNK = 2**15  # nodes, of all pairs together, that are integrated at a time


@functools.cache
def _legendre(points: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(points)


def numeric_covariance(
    first: Activation,
    second: Activation,
    mean: tuple[Array, Array],
    variance: tuple[Array, Array],
    covariance: Array,
) -> Array:
    """Cov(f(x), g(y)) by quadrature, with whatever accuracy the moments of f and g have.

    Measured with exact moments, |μ/σ| ≤ 8, σ from 1e-3 to 1e2 and |ρ| from 0.3 to 1: relative error
    1e-9 in double precision. Memory is bounded by :data:`CHUNK` evaluations of the moments, in
    the backward pass too, which repeats them.

    Args:
        first: f, without parameters that differ between the components of x.
        second: g, likewise.
        mean: means of x and y, each [n].
        variance: variances of x and y, each [n].
        covariance: Cov(x, y), [n].

    Returns:
        [n].

    Source: the law of total covariance, given a common factor.
    """
    xp = namespace(covariance)
    points = POINTS[is_single(covariance)]
    step = max(1, CHUNK // (points * (len(_edge_count(first)) + len(_edge_count(second)) + 13)))
    run = recomputed(lambda *arrays: _integrated(first, second, points, *arrays))
    # in double precision, where there is one: f less its mean rounds on a plateau of f
    parts = [double(part) for part in (*mean, *variance, covariance)]
    starts = range(0, covariance.shape[0], step)
    results = [run(*(part[start : start + step] for part in parts)) for start in starts]
    total = results[0] if len(results) == 1 else xp.concat(results)
    return xp.astype(total, covariance.dtype, copy=False)


def _edge_count(activation: Activation) -> range:
    return range(len(_knots(activation)) * (2 * len(DISTANCES) - 1 + 2 * len(BLURS)))


def _knots(activation: Activation) -> list[tuple[Any, Any]]:
    """Places and the scale at which the function changes there, by default one."""
    knots = getattr(activation, "knots", (0.0,))
    return [knot if isinstance(knot, tuple) else (knot, 1.0) for knot in knots]


def _edges(activation: Activation, mean: Array, share: Array, blur: Array) -> list[Array]:
    """Ends of panels over w around the knots of the activation of mean + share · w + blur · e."""
    xp = namespace(mean)
    offsets = [0.0, *(sign * distance for distance in DISTANCES[1:] for sign in (-1, 1))]
    blurs = [sign * distance * blur for distance in BLURS for sign in (-1, 1)]
    return [
        xp.clip((knot - mean + offset) / share, min=-REACH, max=REACH)
        for knot, stretch in _knots(activation)
        for offset in (*(stretch * offset for offset in offsets), *blurs)
    ]


def _nodes(edges: list[Array], points: int) -> tuple[Array, Array]:
    """Nodes w and weights on a new leading axis."""
    like = edges[0]
    xp = namespace(like)
    fixed = [xp.zeros_like(like) + edge for edge in DEVIATIONS]
    ends = xp.sort(xp.stack(fixed + edges, axis=0), axis=0)
    half, centre = (ends[1:] - ends[:-1])[:, None] / 2, (ends[1:] + ends[:-1])[:, None] / 2
    places, weights = (constants(part.reshape(1, -1, 1), like) for part in _legendre(points))
    factor = xp.reshape(centre + half * places, (-1, *like.shape))
    mass = xp.reshape(half * weights, factor.shape) * xp.exp(-0.5 * factor**2)
    return factor, mass / math.sqrt(2 * math.pi)


def _integrated(
    first: Activation,
    second: Activation,
    points: int,
    mean_x: Array,
    mean_y: Array,
    variance_x: Array,
    variance_y: Array,
    covariance: Array,
) -> Array:
    xp = namespace(covariance)
    scale_x, scale_y = safe_scale(variance_x), safe_scale(variance_y)
    # a little less than one, so that something is not shared, and derivatives exist
    rho = covariance / (scale_x * scale_y) * (1 - 8 * float(xp.finfo(covariance.dtype).eps))
    rho = xp.clip(rho, min=-1.0, max=1.0)
    size = xp.clip(xp.abs(rho), min=1e-12)
    share_x = scale_x * size**0.5
    share_y = xp.where(rho < 0, -scale_y, scale_y) * size**0.5
    rest_x, rest_y = variance_x * (1 - size), variance_y * (1 - size)
    edges = [
        *_edges(first, *map(stop_gradient, (mean_x, share_x, safe_scale(rest_x)))),
        *_edges(second, *map(stop_gradient, (mean_y, share_y, safe_scale(rest_y)))),
    ]
    factor, weights = _nodes(edges, points)
    left = _centred(first, mean_x + share_x * factor, rest_x, weights)
    right = _centred(second, mean_y + share_y * factor, rest_y, weights)
    return xp.sum(weights * left * right, axis=0)


def _centred(activation: Activation, mean: Array, variance: Array, weights: Array) -> Array:
    """E[f | w] less its mean."""
    xp = namespace(mean)
    values = activation.moments(mean, xp.broadcast_to(variance, mean.shape))[0]
    return values - xp.sum(weights * values, axis=0) / xp.sum(weights, axis=0)
