"""Means of powers of a normal density whose scale is an exponential or a softplus of a Gaussian.

For a residual r and a scale s(h), (1/a) log E N(r; 0, s²)ᵃ is an integral over h, as r is
integrated in closed form given h. Its derivatives by the moments are means of derivatives by r and
h under the tilted density (Price 1958): one pass over the nodes gives the value and all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat

from moment_calculus.numerics.arrays import (
    Array,
    constants,
    namespace,
    positive_part,
    safe_scale,
    stop_gradient,
)
from moment_calculus.numerics.derivatives import elementwise_of_statistics, may_read
from moment_calculus.numerics.execution import LARGE, by_numpy, cond, in_cpu_chunks
from moment_calculus.numerics.quadrature import standard_nodes, trapezoidal

LOG_2PI = math.log(2 * math.pi)
EVEN, EDGE = 64, 9.0  # number of evenly spaced nodes, and standard deviations to the outermost
WIDEST = 1.0  # Var h, and a Var h, up to which they suffice
DETERMINED = 0.81  # squared correlation from which on r may be a sharp function of h
INSIDE = 5.0  # standard deviations of h between which the peak has to lie
# So much of large arrays is computed together, as each number has so many nodes: bytes of a torch
# tensor, elements of a JAX array.
PIECE, JAX_PIECE = 1 << 13, 1 << 9

Nodes = tuple[Array, Array]  # in standard deviations of h, and weights, [nodes, *shape]
Moments = tuple[Array, Array, Array, Array, Array]  # of r, Cov(r, h), and of h

LINKS = ("exp", "softplus")
Link = tuple[str, float]  # the scale is eʰ or log(1 + eʰ), plus a floor ≥ 0


def log_tilted_normal(moments: Moments, power: Any, link: Link = ("exp", 0.0)) -> Array:
    """Return (1/a) log E N(r; 0, s(h)²)ᵃ for arrays of one shape; E log N for a = 0.

    Measured error, in units of one plus the value: 2e-6 by evenly spaced nodes, which are
    taken for elements for which they suffice (under JAX if they suffice for all); else that of
    the panels of `standard_nodes`.
    """
    if isinstance(power, int | float):
        function = _at_power(float(power), link)
        few = math.prod(moments[0].shape) <= LARGE
        return by_numpy(function, *moments) if few else function(*moments)
    return _at_power(None, link)(*moments, power + 0 * moments[0])


@functools.lru_cache(maxsize=64)  # a power may change at every step
def _at_power(power: float | None, link: Link) -> Callable[..., Array]:
    """Return the function of the moments, and of the power too if it is an array."""

    def by(rule: Callable[..., Nodes], *arrays: Array) -> tuple[Array, ...]:
        found = _integrated(rule, arrays[:5], arrays[5] if power is None else power, link)
        return found[: 1 + len(arrays)]

    ways = functools.partial(by, _even), functools.partial(by, _panels)

    def statistics(*arrays: Array) -> tuple[Array, ...]:
        smooth = _is_smooth(arrays[:5], arrays[5] if power is None else power, link)
        if array_api_compat.is_jax_array(smooth):
            return cond(smooth.all(), *ways, *arrays)
        if may_read(smooth) and smooth.any() and not smooth.all():
            return _in_two_ways(ways, smooth, arrays)
        return ways[not (may_read(smooth) and smooth.all())](*arrays)

    return elementwise_of_statistics(in_cpu_chunks(statistics, JAX_PIECE), 1, piece=PIECE)


def _in_two_ways(
    ways: Sequence[Callable[..., tuple[Array, ...]]], first: Array, arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """Compute the elements that a mask chooses in the first way, and the others in the second."""
    # neither way sees the other's elements: the gradient of what it makes of them may be infinite
    masks = first, ~first
    parts = [way(*(array[mask] for array in arrays)) for way, mask in zip(ways, masks, strict=True)]
    results = tuple(namespace(first).empty_like(arrays[0]) for _ in parts[0])
    for mask, values in zip(masks, parts, strict=True):
        for result, value in zip(results, values, strict=True):
            result[mask] = value
    return results


def _is_smooth(moments: Moments, power: Any, link: Link) -> Array:
    """Tell where evenly spaced nodes suffice."""
    _, variance, covariance, _, log_variance = moments
    wide = (log_variance > WIDEST) | (power * log_variance > WIDEST)
    if _is_zero(power):
        return ~wide
    determined = covariance * covariance > DETERMINED * variance * log_variance
    low, high = (_Integrand(moments, power, link, end).rise() / end for end in (-INSIDE, INSIDE))
    # the integrand rises up to the one end and falls from the other one
    return (low <= 1) & (high <= 1) & ~determined & ~wide


class _Integrand:
    """The log of N(r̂; 0, s² + a u)ᵃ at nodes of h, up to a factor, and its derivatives."""

    def __init__(self, moments: Moments, power: Any, link: Link, z: Any) -> None:
        mean, variance, covariance, log_mean, log_variance = moments
        self.power, self.deviation = power, safe_scale(log_variance)
        self.slope = covariance / self.deviation
        rest = positive_part(variance - self.slope * self.slope)  # u, the variance of r given h
        scale, self.rate, self.bend = _scale(link, log_mean + self.deviation * z)
        xp = namespace(mean)
        self.log_scale, squared = xp.log(scale), scale * scale
        total = squared + power * rest
        self.growth = _growth(power * rest, squared, self.log_scale)
        limit, residual = float(xp.finfo(mean.dtype).max) ** 0.45, mean + self.slope * z
        self.pull = xp.clip(residual / total, min=-limit, max=limit)
        self.misfit = xp.clip(residual * self.pull, max=limit)
        self.inverse, self.own, self.shared = 1 / total, squared / total, rest / total

    def expected(self) -> Array:
        """Return E log N(r; 0, s²) given h, which is what its log by a tends to for small a."""
        return -0.5 * (LOG_2PI + 2 * self.log_scale + self.misfit + self.shared)

    def log_value(self) -> Array:
        """Return the log of the integrand."""
        spread = self.power * (LOG_2PI + 2 * self.log_scale + self.misfit)
        return -0.5 * (spread + self.growth)

    def by_log_scale(self) -> Array:
        """Return its derivative by log s, by a."""
        return self.shared + self.own * self.misfit - 1

    def rise(self) -> Array:
        """Return its derivative by z."""
        by_z = self.deviation * self.rate * self.by_log_scale() - self.slope * self.pull
        return self.power * by_z


def _scale(link: Link, h: Array) -> tuple[Array, Any, Any]:
    """Return s, and the first and the second derivative of log s."""
    xp, (kind, floor) = namespace(h), link
    most = math.log(float(xp.finfo(h.dtype).max)) / 2.2
    grown = xp.exp(xp.clip(h, min=-most, max=most))
    if kind == "exp":
        scale = grown + floor
        rate = grown / scale if floor else 1.0
        return scale, rate, rate * (1 - rate)
    scale = xp.where(h > most, h, xp.log1p(grown)) + floor
    rate = grown / (1 + grown) / scale
    return scale, rate, rate * (1 / (1 + grown) - rate)


def _growth(added: Array, squared: Array, log_scale: Array) -> Array:
    """Return log(1 + added / squared)."""
    xp = namespace(squared)
    least = added / float(xp.finfo(squared.dtype).max) ** 0.5  # below it the ratio may overflow
    logs = xp.log(xp.clip(added, min=float(xp.finfo(squared.dtype).tiny))) - 2 * log_scale
    return xp.where(squared < least, logs, xp.log1p(added / xp.clip(squared, min=least)))


def _integrated(
    rule: Callable[..., Nodes], moments: Moments, power: Any, link: Link
) -> tuple[Array, ...]:
    """Return the value, and its derivatives by the five moments and by the power."""
    z, weights = rule(moments[3], safe_scale(moments[4]))
    at = _Integrand(moments, power, link, z)
    xp = namespace(z)
    if _is_zero(power):
        value, shares = xp.sum(weights * at.expected(), axis=0), weights
    else:
        log_mean, shares = _log_mean(at.log_value(), weights)
        value = log_mean / power
    pull, rate, by_log = at.pull, at.rate, at.by_log_scale()
    q, by_h = at.own * at.misfit, rate * by_log
    bend = 2 * rate * rate * (q * (1 - 2 * at.own) - at.shared * at.own) + at.bend * by_log
    terms = (
        -pull,
        0.5 * (power * pull * pull - at.inverse),
        pull * (2 * rate * at.own - power * by_h),
        by_h,
        0.5 * (bend + power * by_h * by_h),
        -0.5 * (LOG_2PI + 2 * at.log_scale + at.shared + q),
    )
    slopes = [xp.sum(shares * term, axis=0) for term in terms]
    by_power = () if _is_zero(power) else ((slopes[5] - value) / power,)
    return value, *slopes[:5], *by_power


def _is_zero(power: Any) -> bool:
    return isinstance(power, float) and power == 0


def _log_mean(exponents: Array, weights: Array) -> tuple[Array, Array]:
    """Return log Σ w eᵍ, accurate for small g too, and the shares of its terms."""
    xp = namespace(exponents)
    lowest = -float(xp.finfo(exponents.dtype).max) / 4
    counted = weights > 0  # weights underflow in single precision
    logs = xp.log(xp.where(counted, weights, xp.ones_like(weights)))
    logs = xp.where(counted, exponents + logs, lowest)
    centre = stop_gradient(xp.sum(weights * exponents, axis=0))
    top = stop_gradient(xp.max(xp.where(counted, exponents, lowest), axis=0))
    moderate = xp.abs(top - centre) <= 1  # rounding may put the mean above the largest
    origin = xp.where(moderate, centre, stop_gradient(xp.max(logs, axis=0)))
    terms = xp.exp(logs - origin)
    total = xp.sum(terms, axis=0)
    excess = xp.sum(weights * xp.expm1(xp.clip(exponents - origin, max=1.0)), axis=0)
    close = xp.where(moderate, excess, xp.zeros_like(excess))
    return xp.where(moderate, xp.log1p(close), xp.log(total)) + origin, terms / total


def _even(log_mean: Array, scale: Array) -> Nodes:
    """Return evenly spaced nodes."""
    column = (-1,) + (1,) * len(scale.shape)
    z, weights = (constants(part.reshape(column), scale) for part in trapezoidal(EVEN, EDGE))
    return z, weights


def _panels(log_mean: Array, scale: Array) -> Nodes:
    """Return panels, also around a log scale of zero."""
    z, weights = standard_nodes(log_mean, scale)
    return z, weights / namespace(weights).sum(weights, axis=0, keepdims=True)
