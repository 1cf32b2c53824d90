"""The normal distribution: density, cdf, tail moments, probabilities and covariances of pairs.

All are relatively accurate in the tails.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from moment_calculus.numerics.arrays import Array, namespace, ndtr, polynomial
from moment_calculus.numerics.derivatives import elementwise
from moment_calculus.numerics.execution import sum_over_nodes
from moment_calculus.numerics.quadrature import unit_legendre

LIMIT = 40.0  # beyond it every tail is 0 in float64: thresholds are clipped there
# Where tails of float32 become 0: below 1e-22, they make products that are denormal numbers.
SINGLE_LIMIT = 10.0


def pdf(x: Array) -> Array:
    """Return the standard normal density."""
    return namespace(x).exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))


def cdf(x: Array) -> Array:
    """Return the standard normal distribution function."""
    return ndtr(x)


def upper_tail(t: Array) -> Array:
    """Return Φ(−t) for t ≥ 0, without own derivatives."""
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    t = namespace(t).clip(t, max=LIMIT)
    return upper_tail_from_density(t, pdf(t))


def upper_tail_from_density(t: Array, density: Array) -> Array:
    """Return Φ(−t) for 0 ≤ t ≤ LIMIT, where the density φ(t) is known already."""
    if not array_api_compat.is_jax_array(t):
        return ndtr(-t)
    reach = t + _tail_quotient(t)
    return density * reach / (1 + t * reach)  # the quotient comes last: XLA computes it once


def is_single_precision(x: Array) -> bool:
    """Return whether an array has float32 precision or less."""
    return namespace(x).finfo(x.dtype).eps > 1e-10


# ---------------------------------------------------------------------------------------------
# Tail moments T0 = Φ(−t), T1 = φ − tΦ(−t), T2 = (1 + t²)Φ(−t) − tφ, without cancellation.
# With a fit of K = T2/T1 the recursions T0 = T2 + t T1 and φ = T1 + t T0 have positive
# terms only: T1 = φ/(1 + t (t + K)).


def raw_tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """Return what :func:`tail_moments` does, without derivatives of its own."""
    return tails_and_density(t)[:3]


def tails_and_density(t: Array) -> tuple[Array, Array, Array, Array]:
    """Return T0, T1, T2 of :func:`tail_moments` and the density, by one exponential."""
    t = _clipped(t)
    quotient, density = _tail_quotient(t), pdf(t)
    reach = t + quotient
    first = density / (1 + t * reach)
    return reach * first, first, quotient * first, density


def scaled_tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """Return T_k(t)/φ(t) of :func:`tail_moments`, for t ≥ 0 of any size."""
    held = namespace(t).clip(t, max=LIMIT)
    quotient = _tail_quotient(held)
    reach = held + quotient
    first = 1 / (1 + held * reach)
    falling = LIMIT / namespace(t).clip(t, min=LIMIT)  # T_k is 1/tᵏ⁺¹ there
    zeroth, first = falling * reach * first, falling * falling * first
    return zeroth, first, falling * quotient * first


def _clipped(t: Array) -> Array:
    """Return thresholds t ≥ 0 up to LIMIT, which replaces those whose tails count as 0."""
    xp = namespace(t)
    if is_single_precision(t):
        return xp.where(t > SINGLE_LIMIT, xp.full_like(t, LIMIT), t)
    return xp.clip(t, max=LIMIT)


# Relative errors of K: 3e-7 in single, 1e-13 in double precision.
_DEGREES = {True: 10, False: 22}
_CENTRE = 4.0
_NEAR, _FAR = 1 / _CENTRE, 1 / (LIMIT + _CENTRE)


@functools.cache
def _tail_polynomial(degree: int) -> tuple[float, ...]:
    """Return coefficients of (t + c) K in powers of u, 1/(t + c) mapped to [−1, 1]."""
    points, weights = np.polynomial.legendre.leggauss(400)

    def target(u: np.ndarray) -> Any:
        shifted = 2 / (_NEAR + _FAR + (_NEAR - _FAR) * u)
        t = np.maximum(shifted - _CENTRE, 0.0)[:, None]
        step = (40 / (t + (t * t + 80) ** 0.5)) * (1 + points)  # t s + s²/2 ≤ 40
        mass = weights * step * np.exp(-step * (t + step / 2))
        return shifted * (mass * step).sum(axis=-1) / mass.sum(axis=-1)

    fit: np.ndarray = np.polynomial.chebyshev.chebinterpolate(target, degree)
    return tuple(np.polynomial.chebyshev.cheb2poly(fit).tolist())


def _tail_quotient(t: Array) -> Array:
    """Return K = T2 / T1 for 0 ≤ t ≤ LIMIT."""
    inverse = 1 / (t + _CENTRE)
    u = inverse * (2 / (_NEAR - _FAR)) - (_NEAR + _FAR) / (_NEAR - _FAR)
    return polynomial(_tail_polynomial(_DEGREES[is_single_precision(t)]), u) * inverse


def _tail_slopes(t: Array) -> Any:
    zeroth, first, _ = tail_moments(t)
    return (-pdf(_clipped(t)),), (-zeroth,), (-2 * first,)


_tail_moments = elementwise(raw_tail_moments, _tail_slopes)


def tail_moments(t: Array) -> tuple[Array, Array, Array]:
    """Return T_k(t) = E[(z − t)₊ᵏ], k = 0, 1, 2, of a standard normal z, for t ≥ 0."""
    return _tail_moments(t)


# ---------------------------------------------------------------------------------------------
# Pairs. With ρ ≥ 0, e = exp(−atanh r), s = a + b, d = a − b, Price's theorem
#     Cov = ∫₀^ρ (…) φ₂(a, b; r) dr
# becomes ∫ 2/(1 + e²) exp(−s²e²/8 − d²/(8e²) − (a² + b²)/4) de/2π over √((1−ρ)/(1+ρ)) ≤ e
# ≤ 1: every term of the exponent has one sign, and its minimum is known, so that
# Gauss–Legendre nodes go only where the integrand lives, spaced in a root of e to resolve
# e → 0 (|ρ| → 1).


@dataclass(frozen=True)
class _Rule:
    """Gauss–Legendre nodes in e^(1/2^halvings), where the integrand > e^(−depth)."""

    halvings: int
    nodes: int
    depth: float


# Largest relative error over |a|, |b| ≤ 8, |ρ| ≤ 1: 2e-5 in single, 1e-8 in double
# precision.
_STEP_RULES = {True: _Rule(2, 14, 16.0), False: _Rule(3, 32, 24.0)}
_RECTIFIER_RULES = {True: _Rule(1, 12, 16.0), False: _Rule(1, 24, 24.0)}


def _range(total: Array, gap: Array, rho: Array, rule: _Rule) -> tuple[Array, Array]:
    """Return the ends of integration as 1 − e^(1/2^halvings), the larger first."""
    xp = namespace(rho)
    least = xp.sqrt((1 - rho) / (1 + rho))
    slope_at_one, slope_at_least = total - gap, total * least - gap / (least + 1e-15)
    outside = xp.clip(xp.maximum(slope_at_least, -slope_at_one), min=0.0)
    reach = xp.sqrt(8 * rule.depth + outside * outside)
    width = reach + xp.sqrt(reach * reach + 4 * total * gap)
    far = xp.minimum(2 * rho / ((1 + rho) * (1 + least)), 1 - 2 * gap / width)
    near = xp.clip(1 - width / (2 * total + 1e-15), min=0.0)
    for _ in range(rule.halvings):
        far, near = (u / (1 + xp.sqrt(xp.clip(1 - u, min=0.0))) for u in (far, near))
    return far, near


def _integrate(a: Array, b: Array, rho: Array, rule: _Rule, *, rectified: bool) -> Array:
    """Return ∫₀^ρ w(r) φ₂(a, b; r) dr for ρ ≥ 0, with w = ρ − r if rectified, else 1."""
    xp = namespace(rho)
    total, gap = xp.abs(a + b), xp.abs(a - b)
    far, near = _range(total, gap, rho, rule)
    start, length = 1 - near, far - near
    rising, falling = total * total * -0.125, gap * gap * -0.125

    def term(node: Any, weight: Any) -> Array:
        root = start - length * node
        jacobian, e = root, root * root
        for _ in range(rule.halvings - 1):
            jacobian, e = jacobian * e, e * e
        square = e * e
        share = 2 / (1 + square)
        density = xp.exp(rising * square + falling / square) * jacobian * share
        return (density * (1 + rho - share) if rectified else density) * weight

    result = sum_over_nodes(term, unit_legendre(rule.nodes), rising + rho)
    return result * length * xp.exp((a * a + b * b) * -0.25) * (2**rule.halvings / (2 * math.pi))


def _folded(a: Array, b: Array, rho: Array) -> tuple[Array, Array, Array, Array]:
    """Clip a and b, flip y where ρ < 0; return a, b, |ρ| and the sign of ρ."""
    xp = namespace(rho)
    sign = xp.where(rho < 0, -xp.ones_like(rho), xp.ones_like(rho))
    a, b = (xp.clip(threshold, min=-LIMIT, max=LIMIT) for threshold in (a, b))
    # ρ · sign, whose derivative at ρ = 0 is 1 unlike that of abs(ρ)
    return a, b * sign, xp.clip(rho * sign, max=1.0), sign


def _conditional(a: Array, b: Array, rho: Array) -> tuple[Array, Array]:
    """Return (a − ρb)/r and (b − ρa)/r, r² = 1 − ρ², accurate for ρ → 1."""
    xp = namespace(rho)
    ratio, gap = xp.sqrt((1 - rho) / (1 + rho)), (a - b) / xp.sqrt(_residual(rho))
    return gap + b * ratio, a * ratio - gap


def _residual(rho: Array) -> Array:
    """Return r² = 1 − ρ², kept above 1e-18."""
    return namespace(rho).clip((1 - rho) * (1 + rho), min=1e-18)


def _bivariate_pdf(a: Array, b: Array, rho: Array) -> Array:
    """Return φ₂(a, b; ρ) for ρ ≥ 0, finite at ρ = 1."""
    residual, gap = _residual(rho), a - b
    exponent = gap * gap / (2 * residual) + a * b / (1 + rho)
    xp = namespace(rho)
    return xp.exp(-xp.clip(exponent, min=0.0)) / (2 * math.pi * xp.sqrt(residual))


# Price's theorem: the derivative of the step covariance by ρ is φ₂(a, b; ρ).
def _step_covariance_values(a: Array, b: Array, rho: Array) -> Array:
    a, b, rho, sign = _folded(a, b, rho)
    return sign * _integrate(a, b, rho, _STEP_RULES[is_single_precision(rho)], rectified=False)


def _step_slopes(a: Array, b: Array, rho: Array) -> Any:
    a, b, rho, sign = _folded(a, b, rho)
    a_given_b, b_given_a = _conditional(a, b, rho)
    slope_a = sign * pdf(a) * (cdf(b_given_a) - cdf(b))
    slope_b = pdf(b) * (cdf(a_given_b) - cdf(a))
    return ((slope_a, slope_b, _bivariate_pdf(a, b, rho)),)


_step_covariance = elementwise(_step_covariance_values, _step_slopes)


def step_covariance(a: Array, b: Array, rho: Array) -> Array:
    """Return Cov(1{x > −a}, 1{y > −b}) = Φ₂(a, b; ρ) − Φ(a)Φ(b) of standard normals x, y."""
    return _step_covariance(a, b, rho)


# Price's theorem: the derivative of the rectifier covariance by ρ is Φ₂(a, b; ρ).
def _rectifier_covariance_values(a: Array, b: Array, rho: Array) -> Array:
    linear = rho * cdf(a) * cdf(b)
    a, b, rho, _ = _folded(a, b, rho)
    return linear + _integrate(
        a, b, rho, _RECTIFIER_RULES[is_single_precision(rho)], rectified=True
    )


def _rectifier_slopes(a: Array, b: Array, rho: Array) -> Any:
    both = step_covariance(a, b, rho)
    x, y, size, sign = _folded(a, b, rho)
    x_given_y, y_given_x = _conditional(x, y, size)
    density_a, density_b = pdf(a), pdf(b)
    reach_a, reach_b = cdf(x_given_y), cdf(sign * y_given_x)
    mass_a, mass_b = cdf(a), cdf(b)
    slope_a = y * sign * both + density_b * (reach_a - mass_a) + rho * density_a * reach_b
    slope_b = x * both + density_a * (reach_b - mass_b) + rho * density_b * reach_a
    return ((slope_a, slope_b, mass_a * mass_b + both),)


_rectifier_covariance = elementwise(_rectifier_covariance_values, _rectifier_slopes)


def rectifier_covariance(a: Array, b: Array, rho: Array) -> Array:
    """Return Cov((x + a)₊, (y + b)₊) of standard normals x, y with correlation ρ."""
    return _rectifier_covariance(a, b, rho)


def bivariate_pdf(a: Array, b: Array, rho: Array) -> Array:
    """Return φ₂(a, b; ρ), the bivariate normal density, kept finite at |ρ| = 1."""
    a, b, rho, _ = _folded(a, b, rho)
    return _bivariate_pdf(a, b, rho)


def conditional_cdf(a: Array, b: Array, rho: Array) -> Array:
    """Return P(x > −a | y = −b) = Φ((a − ρb)/√(1 − ρ²)) of standard normals x, y."""
    return cdf(conditional_threshold(a, b, rho))


def conditional_threshold(a: Array, b: Array, rho: Array) -> Array:
    """Return (a − ρb)/√(1 − ρ²), accurate for |ρ| → 1."""
    a, b, rho, _ = _folded(a, b, rho)
    return _conditional(a, b, rho)[0]


# The mixed covariance is the derivative of the rectifier covariance by b.
def _mixed_covariance_values(a: Array, b: Array, rho: Array) -> Array:
    xp = namespace(rho)
    a, b, rho, sign = _folded(a, b, rho)
    a_given_b, b_given_a = _conditional(a, b, rho)
    both = _integrate(a, b, rho, _STEP_RULES[is_single_precision(rho)], rectified=False)
    # the difference of the smaller tails, which does not cancel
    rise = xp.where(b > 0, cdf(-b) - cdf(-b_given_a), cdf(b_given_a) - cdf(b))
    return sign * (a * both + pdf(a) * rise + rho * pdf(b) * cdf(a_given_b))


def _mixed_slopes(a: Array, b: Array, rho: Array) -> Any:
    both = step_covariance(a, b, rho)
    a, b, size, _ = _folded(a, b, rho)
    centre, density = _conditional(a, b, size)[0], pdf(b)
    width = namespace(size).sqrt(_residual(size))
    shifted = (a - size * b) * cdf(centre) + width * pdf(centre)
    slope_b = density * (shifted - a * cdf(a) - pdf(a))
    return ((both, slope_b, density * cdf(centre)),)


_mixed_covariance = elementwise(_mixed_covariance_values, _mixed_slopes)


def mixed_covariance(a: Array, b: Array, rho: Array) -> Array:
    """Return Cov((x + a)₊, 1{y > −b}) of standard normals x, y with correlation ρ."""
    return _mixed_covariance(a, b, rho)
