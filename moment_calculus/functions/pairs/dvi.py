"""Closed-form approximations of pairs by deterministic variational inference [DVI], corrected.

The paper's Table 1 prints two signs and a prefactor wrong; these are the forms that agree
with the exact covariances (1e-4 for |ρ| < 0.6, 1e-2 at |ρ| = 0.99).
"""

from __future__ import annotations

import math

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.derivatives.elementwise import with_checkpoint
from moment_calculus.numerics.normal.bivariate import LIMIT, cdf
from moment_calculus.numerics.special import namespace

SERIES_BELOW = 0.2


def _arcsine_excess(rho: Array) -> Array:
    """Return (asin ρ − ρ)/ρ³, which is even and regular at ρ = 0."""
    xp = namespace(rho)
    small = xp.abs(rho) < SERIES_BELOW
    square = xp.where(small, rho * rho, xp.zeros_like(rho))
    series = 0.0
    for coefficient in (10395 / 599040, 945 / 42240, 105 / 3456, 15 / 336, 3 / 40, 1 / 6):
        series = series * square + coefficient
    large = xp.where(small, xp.ones_like(rho) / 2, rho)
    return xp.where(small, series, (xp.asin(large) - large) / large**3)


def _prepared(a: Array, b: Array, rho: Array) -> tuple[Array, ...]:
    """Return the clipped arguments, r = √(1 − ρ²), (asin ρ − ρ)/ρ³ and asin(ρ)/ρ."""
    xp = namespace(rho)
    rho = xp.clip(rho, min=-1 + 1e-6, max=1 - 1e-6)
    a, b = (xp.clip(threshold, min=-LIMIT, max=LIMIT) for threshold in (a, b))
    excess = _arcsine_excess(rho)
    return a, b, rho, ((1 - rho) * (1 + rho)) ** 0.5, excess, 1 + rho * rho * excess


@with_checkpoint
def dvi_rectifier(a: Array, b: Array, rho: Array) -> Array:
    """Return approximately Cov((x + a)₊, (y + b)₊) of standard normals with correlation ρ.

    Source: [DVI] Table 1, with g_r = asin ρ − ρ/(1 + r) and prefactor ρ g_r/2π.
    """
    xp = namespace(rho)
    a, b, rho, root, excess, arcsine = _prepared(a, b, rho)
    quotient = arcsine - 1 / (1 + root)
    exponent = (a * a + b * b) / (2 * quotient * (1 + root)) - rho * excess / quotient * a * b
    return rho * (cdf(a) * cdf(b) + rho * quotient / (2 * math.pi) * xp.exp(-exponent))


@with_checkpoint
def dvi_step(a: Array, b: Array, rho: Array) -> Array:
    """Return approximately Cov(1{x > −a}, 1{y > −b}) of standard normals with correlation ρ.

    Source: [DVI] Table 1 for the Heaviside step, with the cross term odd in ρ.
    """
    xp = namespace(rho)
    a, b, rho, root, _, arcsine = _prepared(a, b, rho)
    crossed = a * b * rho / (arcsine * root * (1 + root))
    exponent = (a * a + b * b) / (2 * arcsine * root) - crossed
    return rho * arcsine / (2 * math.pi) * xp.exp(-exponent)
