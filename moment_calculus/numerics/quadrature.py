"""Compute Gaussian expectations of any elementwise function, at any scale: the universal rule.

The window of ±REACH standard deviations is cut into panels, at fixed numbers of standard
deviations (to resolve the Gaussian) and at fixed distances from the knots of the function
(to resolve the function). Each panel has a Gauss-Legendre rule: a kink or jump at a knot
costs no accuracy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import (
    Array,
    constants,
    is_traced_once,
    logsumexp,
    namespace,
    ndtri,
    safe_scale,
    stop_gradient,
)
from moment_calculus.numerics.derivatives import may_read

REACH = 14.0
DEVIATIONS = (-REACH, -10.0, -7.0, -5.0, -3.5, -2.0, -0.7, 0.7, 2.0, 3.5, 5.0, 7.0, 10.0, REACH)
DISTANCES = (0.0, 0.7, 1.5, 3.0, 6.0, 12.0, 20.0, 36.0)
OFFSETS = (*(-distance for distance in DISTANCES[:0:-1]), *DISTANCES)
POINTS = 10
# Counts of evenly spaced points to try, and how many standard deviations they reach: both
# grow, so that a tail that is cut off shows as a change.
EVEN_RULES = (24, 6.5), (36, 8.5), (56, 10.5), (112, 12.5)
FEWEST_COMPILED = 36  # points in JAX, some of weight zero: it compiles every shape anew


@dataclass
class EvenRule:
    """A rule of evenly spaced points that :func:`adaptive_integral` tries."""

    count: int  # points over each Gaussian
    edge: float  # standard deviations from the mean to the outermost point
    used: bool = False  # whether an integral was taken by it


_RULE_ON_TRIAL: ContextVar[EvenRule | None] = ContextVar("tried", default=None)


@functools.cache
def legendre(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the Gauss-Legendre rule on [−1, 1]."""
    return np.polynomial.legendre.leggauss(points)


@functools.cache
def unit_legendre(points: int) -> tuple[tuple[float, float], ...]:
    """Return pairs of nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    nodes, weights = legendre(points)
    return tuple(zip(((nodes + 1) / 2).tolist(), (weights / 2).tolist(), strict=True))


@functools.cache
def gauss_hermite(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of the Gauss-Hermite rule for a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    return nodes, weights / weights.sum()


@functools.cache
def trapezoidal(count: int, edge: float) -> tuple[np.ndarray, np.ndarray]:
    """Return evenly spaced nodes in ±edge and their weights for a standard normal variable."""
    # For analytic functions its error falls exponentially with the number of nodes
    # (Trefethen and Weideman 2014).
    nodes = np.linspace(-edge, edge, count)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


@functools.cache
def low_discrepancy(count: int, axes: int) -> np.ndarray:
    """Return fixed, evenly spread normal points [count, axes] of equal weight (Sobol)."""
    from scipy.stats import qmc  # which takes long to import

    # Sobol 1967, moved by half a step; the count has to be a power of two.
    cube = qmc.Sobol(axes, scramble=False).random(count) + 0.5 / count
    return ndtri(np.sort(cube, axis=0) if axes == 1 else cube)


def _near(knot: Any, mean: Array, scale: Array) -> Array:
    """Return panel edges around a knot in standard deviations from μ, [edges, ...]."""
    # A knot is a place where f bends, jumps or leaves its asymptotes, at the scale of
    # one, or a pair of a place and another scale; places are numbers or arrays
    # broadcastable to the mean.
    xp = namespace(mean)
    location, width = knot if isinstance(knot, tuple) else (knot, 1.0)
    edges = (location + _ramp(OFFSETS, mean) * width - mean) / scale
    # a knot that is nowhere (NaN, from an inverse that does not exist) goes to the end
    return xp.clip(xp.where(edges == edges, edges, REACH), min=-REACH, max=REACH)


def _ramp(numbers: Sequence[float], like: Array) -> Array:
    """Return numbers on a new leading axis before those of an array."""
    return constants(np.reshape(numbers, (-1,) + (1,) * len(like.shape)), like)


def _edges(mean: Array, scale: Array, knots: Sequence[Any]) -> Array:
    """Return the ends of the panels in standard deviations, ascending, [edges, ...]."""
    xp = namespace(mean)
    fixed = xp.zeros_like(mean) + _ramp(DEVIATIONS, mean)
    near = [_near(knot, mean, scale) for knot in knots]
    return xp.sort(xp.concat([fixed, *near], axis=0), axis=0)


def standard_nodes(
    mean: Array, scale: Array, knots: Sequence[Any] = (0.0,), points: int = POINTS
) -> tuple[Array, Array]:
    """Return z and w, [nodes, ...], with E[f(x)] = Σ w f(μ + σz); no gradients."""
    xp = namespace(mean)
    edges = stop_gradient(_edges(mean, scale, knots))
    half = (edges[1:] - edges[:-1])[:, None] / 2
    centre = (edges[1:] + edges[:-1])[:, None] / 2
    panel_nodes, weights = (
        constants(part.reshape((1, -1) + (1,) * len(mean.shape)), mean) for part in legendre(points)
    )
    flat = (half.shape[0] * points, *mean.shape)  # no -1, for arrays without elements
    flat_nodes = xp.reshape(centre + half * panel_nodes, flat)
    mass = xp.reshape(half * weights, flat) * xp.exp(-0.5 * flat_nodes**2) / math.sqrt(2 * math.pi)
    return flat_nodes, mass


def nodes(
    mean: Array, variance: Array, knots: Sequence[Any] = (0.0,), points: int = POINTS
) -> tuple[Array, Array]:
    """Return x and w, [nodes, ...], with E[f(x)] = Σ w f(x) for x ~ N(mean, variance)."""
    scale = safe_scale(variance)
    # Fixed panels leave the gradient, which flows through the points, exact for every
    # continuous f.
    found, mass = standard_nodes(mean, scale, knots, points)
    return mean + scale * found, mass


def rule_on_trial() -> EvenRule | None:
    """Return the rule that :func:`adaptive_integral` is trying; None outside of it."""
    return _RULE_ON_TRIAL.get()


@contextmanager
def even_rule(count: int = 36, edge: float = 8.5) -> Iterator[None]:
    """Let quadratures take evenly spaced points: for functions smooth over one unit.

    Their error over log scales (singular at an imaginary distance of π/2) is 1e-9, 5e-5
    and 1e-3 of the amplitude at standard deviations of 1, 2 and 3.
    """
    token = _RULE_ON_TRIAL.set(rule_on_trial() or EvenRule(count, edge))
    try:
        yield
    finally:
        _RULE_ON_TRIAL.reset(token)


def even_nodes(mean: Array, variance: Array) -> tuple[Array, Array]:
    """Return what :func:`nodes` does, by the evenly spaced points of the rule on trial."""
    rule = _RULE_ON_TRIAL.get()
    assert rule is not None, "a rule that is tried"
    rule.used = True
    parts: tuple[Any, ...] = trapezoidal(rule.count, rule.edge)
    if is_traced_once(mean) and rule.count < FEWEST_COMPILED:
        parts = tuple(np.pad(part, (0, FEWEST_COMPILED - rule.count)) for part in parts)
    points, mass = (constants(part.reshape((-1,) + (1,) * len(mean.shape)), mean) for part in parts)
    return mean + safe_scale(variance) * points, mass + 0 * mean


def adaptive_integral(
    compute: Callable[[], Array], tolerance: float, *, relative: bool = False
) -> Array:
    """Compute integrals over Gaussians by few evenly spaced points where these suffice.

    More points are tried until the result changes by no more than ``tolerance``, in
    float32 by 1e-5. Otherwise, and in traced programs, the integrals are by panels, which
    resolve anything but take a hundred times as long for two Gaussians.
    """
    if rule_on_trial() is not None:
        return compute()
    before = None
    for count, edge in EVEN_RULES:
        rule = EvenRule(count, edge)
        token = _RULE_ON_TRIAL.set(rule)
        try:
            result = compute()
        finally:
            _RULE_ON_TRIAL.reset(token)
        if not rule.used:
            return result
        if not may_read(result):
            break
        if before is not None and _is_close(before, result, tolerance, relative):
            return result
        before = result
    return compute()


def _is_close(first: Array, second: Array, tolerance: float, relative: bool) -> bool:
    xp = namespace(first)
    least = max(tolerance, 100 * float(xp.finfo(first.dtype).eps))
    size = xp.abs(second) if relative else 1.0
    same = (xp.abs(first - second) <= least * size) | (first == second)
    return bool(xp.all(same | (xp.isnan(first) & xp.isnan(second))))


def log_weights(weights: Array) -> Array:
    """Return the log of quadrature weights in float64, with a floor against underflow."""
    xp = namespace(weights)
    return xp.log(xp.clip(weights, min=1e-300))


def log_mean_exp(exponents: Array, weights: Array, axes: int = 1) -> Array:
    """Return the log [*shape] of the weighted mean of e^g, relatively accurate for small g too.

    The first ``axes`` axes of g [nodes, ..., *shape] are nodes; the weights need not sum
    to one. Where no g exceeds the mean by more than one, it is log(1 + E[e^(g − E g) −
    1]) + E g, in which nothing cancels; elsewhere it is the logsumexp.
    """
    xp, grid_axes = namespace(exponents), tuple(range(axes))
    shares = weights / xp.sum(weights, axis=grid_axes, keepdims=True)
    terms = xp.where(shares > 0, shares * stop_gradient(exponents), 0 * shares)
    centre = xp.sum(terms, axis=grid_axes, keepdims=True)  # its gradient would cancel
    centre = xp.where(xp.isfinite(centre), centre, xp.zeros_like(centre))
    rises = exponents - centre
    moderate = xp.all((rises <= 1) | (shares <= 0), axis=grid_axes)
    capped = xp.where(rises <= 1, rises, xp.ones_like(rises))
    close = xp.sum(xp.where(shares > 0, shares * xp.expm1(capped), 0 * shares), axis=grid_axes)
    close = xp.where(moderate, close, xp.zeros_like(close))
    small = xp.log1p(close) + xp.reshape(centre, close.shape)
    # Weights underflow in single precision; −∞ throughout an axis would make its sum NaN.
    positive = shares > 0
    logs = log_weights(xp.where(positive, shares, xp.ones_like(shares)))
    wide = xp.where(positive, exponents + logs, -1e30 * xp.ones_like(exponents))
    for _ in grid_axes:
        wide = logsumexp(wide, axis=0)
    return xp.where(moderate, small, wide)
