"""Moments of ELU for Gaussians with σ ≤ 1, in single precision.

The closed form would cancel: its terms have the size of α², the variance that of σ².
Differences from f(μ) do not cancel: above 0, where f is a line, truncated moments give
their expectations, and below it Gauss–Legendre nodes.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from moment_calculus.functions.base import Array
from moment_calculus.numerics.normal.bivariate import cdf, pdf
from moment_calculus.numerics.special import TINY_VARIANCE, constants, namespace, safe_scale

REACH, NODES = 6.0, 20  # z < −REACH, 2e-8 of an expectation, is left out


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(NODES)
    return (1 + points) / 2, weights / 2 / math.sqrt(2 * math.pi)


def _below(threshold: Array) -> tuple[Array, Array]:
    """Return steps z < −μ/σ and their weights, on a new trailing axis."""
    xp = namespace(threshold)
    shares, weights = (constants(part, threshold) for part in _legendre())
    length = (REACH - xp.clip(threshold, min=-REACH, max=REACH))[..., None]
    z = length * shares - REACH
    return z, length * weights * xp.exp(z * z * -0.5)


def narrow_statistics(alpha: float, mean: Array, variance: Array) -> tuple[Array, ...]:
    """Return mean, variance, and the derivatives of each by μ and by v, for variances up to 1."""
    # Relative errors in single precision (measured for |μ/σ| ≤ 8, σ from 1e-3 to 1): 5e-7
    # of the moments and 2e-6 of the derivatives.
    xp = namespace(mean)
    scale, low, left = safe_scale(variance), xp.clip(mean, max=0.0), mean <= 0
    threshold = mean / scale
    z, weights = _below(threshold)
    mass, density = cdf(threshold), pdf(threshold)  # E[1; x > 0] and E[z; x > 0]
    # f − f(μ) and f′ − f′(μ) below 0; above it f − f(μ) = σz + gap, and f′ − f′(μ) is a
    # jump
    sink, start = alpha * xp.expm1(low), xp.where(left, alpha * xp.exp(low), xp.ones_like(mean))
    step = xp.expm1(scale[..., None] * z)
    beyond = xp.expm1(xp.clip(mean[..., None] + scale[..., None] * z, max=0.0))
    fall, side = (start[..., None] * step, left[..., None])
    rise = xp.where(side, fall, alpha * beyond - mean[..., None])
    turn = xp.where(side, fall, alpha * (1 + beyond) - 1)
    jump = xp.where(left, (1 - alpha) - sink, xp.zeros_like(mean))
    shift = xp.sum(weights * rise, axis=-1)
    gap = xp.where(left, mean - sink, xp.zeros_like(mean))
    shift = shift + scale * density + gap * mass
    rest = gap - shift
    centred = weights * (rise - shift[..., None])
    first = scale * density + rest * mass  # E[f − E f; x > 0]; the next has the factor z
    second = scale * (mass - threshold * density) + rest * density
    spread = xp.sum(centred * (rise - shift[..., None]), axis=-1) + scale * second + rest * first
    bend = xp.sum(weights * z * turn, axis=-1) + jump * density
    slant = xp.sum(centred * z * (start[..., None] + turn), axis=-1) + (start + jump) * second
    random, inverse = variance > TINY_VARIANCE, 1 / scale
    return (
        xp.where(left, sink, mean) + shift,
        xp.clip(spread, min=0.0),
        start + xp.sum(weights * turn, axis=-1) + jump * mass,
        xp.where(random, bend * inverse / 2, alpha * xp.exp(low) / 2),
        2 * (xp.sum(centred * turn, axis=-1) + jump * first),
        xp.where(random, slant * inverse, start * start),
    )
