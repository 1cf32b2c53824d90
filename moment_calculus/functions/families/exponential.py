"""The exponential function, whose image of a Gaussian is log-normal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Activation, Array, inverse_at
from moment_calculus.numerics.choices import known_all_false
from moment_calculus.numerics.special import namespace, safe_scale, stop_gradient


def capped_exp(x: Array, share: float = 1.0) -> Array:
    """Return eˣ, capped at about 1/3000 of the largest finite number, with zero gradient there."""
    xp = namespace(x)
    limit = share * (math.log(xp.finfo(x.dtype).max) - 8.0)  # logarithm of the cap
    capped = x > limit
    if known_all_false(capped):
        return xp.exp(x)
    # where instead of clip: JAX's gradient of clip would multiply an infinity by zero
    return xp.exp(xp.where(capped, limit + xp.zeros_like(x), x))


def infinite_where_capped(mean: Array) -> Array:
    """Replace expected exponentials that :func:`capped_exp` capped by ±infinity."""
    xp = namespace(mean)
    limit = 0.99 * math.exp(math.log(xp.finfo(mean.dtype).max) - 8.0)
    capped = xp.abs(mean) > limit
    return (
        mean
        if known_all_false(capped)
        else xp.where(capped, xp.sign(stop_gradient(mean)) * math.inf, mean)
    )


def _split_expm1(x: Array) -> tuple[Array, Any]:
    """Split expm1(x) into e^p · g with p = max(x, 0) and |g| ≤ 1; return p and g."""
    xp = namespace(x)
    zero = xp.zeros_like(x)
    up, down = xp.where(x > 0, x, zero), xp.where(x > 0, zero, x)
    return up, xp.expm1(down) - xp.expm1(-up)


@dataclass(frozen=True)
class Exp(Activation):
    """The function eˣ; moments beyond the range of the dtype are capped at a finite value."""

    name = "exp"
    bounds = (0.0, math.inf)
    open_ended = True
    superlinear = True

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return capped_exp(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return the logarithm, and its derivative."""
        return inverse_at(level, (0.0, math.inf), lambda xp, y: xp.log(y), lambda xp, y: 1 / y)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance, e^{μ+v/2} and e^{2μ+v}(e^v − 1)."""
        up, growth = _split_expm1(variance)
        spread = capped_exp(2 * mean + variance + up) * growth
        return capped_exp(mean + variance / 2), spread

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative, which is the mean itself."""
        return capped_exp(mean + variance / 2)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return g_n = e^{μ+v/2} σⁿ / √n!, capped so that products of two are finite."""
        exponent = mean + variance / 2
        step = namespace(mean).log(safe_scale(variance))
        return [
            capped_exp(exponent + n * step - math.lgamma(n + 1) / 2, share=0.5)
            for n in range(1, order + 1)
        ]

    def pair_covariance(self, mean: Array, variance: Array, covariance: Array) -> Array:
        """Return the exact covariance of every pair, m_i m_j (e^{C_ij} − 1)."""
        exponent = mean + variance / 2
        up, growth = _split_expm1(covariance)
        return capped_exp(exponent[..., :, None] + exponent[..., None, :] + up) * growth


@dataclass(frozen=True)
class Expm1(Exp):
    """The function eˣ − 1, with a mean that is relatively accurate near zero."""

    name = "expm1"
    bounds = (-1.0, math.inf)

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return _capped_expm1(x)

    def preimages(self, level: Any) -> tuple[tuple[Any, Any], ...]:
        """Return log(1 + y), and its derivative."""
        return super().preimages(level + 1)

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the exact mean and variance."""
        return _capped_expm1(mean + variance / 2), super().moments(mean, variance)[1]


def _capped_expm1(x: Array) -> Array:
    """Return eˣ − 1, capped where eˣ is."""
    xp = namespace(x)
    return xp.where(x < 1, xp.expm1(xp.clip(x, max=1.0)), capped_exp(x) - 1)
