"""A rectified Gaussian under the weight exp(s h + ½ c h²): its mass and moments, in closed form."""

from __future__ import annotations

from moment_calculus.numerics.arrays import Array, namespace, safe_scale
from moment_calculus.numerics.derivatives import elementwise_of_statistics
from moment_calculus.numerics.normal import cdf, pdf, scaled_tail_moments

LARGEST = 70.0  # logarithm of a weight, beyond which the part at zero does not count
SMALLEST = 0.05  # of 1 − c v, below which the mass, infinite at zero, goes on as its tangent


def tilted_rectifier(
    mean: Array, variance: Array, slope: Array, curvature: Array, *, order: int = 2
) -> tuple[Array, list[Array]]:
    """Return log E exp(s h + ½ c h²) and E h … E hᵏ under that weight, for h = max(a, 0).

    ``mean`` m and ``variance`` v are those of the Gaussian a, k is ``order``. The
    expectation is infinite for c v ≥ 1; beyond 0.95 its logarithm goes on as a tangent by
    c, so that a training finds back.
    """
    xp = namespace(mean)
    mean, variance, slope, curvature = xp.broadcast_arrays(mean, variance, slope, curvature)
    limit = (1 - SMALLEST) / xp.clip(variance, min=float(xp.finfo(variance.dtype).tiny))
    held = xp.minimum(curvature, limit)
    if order == 2:
        mass, *moments = _with_slopes(mean, variance, slope, held)
    else:
        mass, _, moments = _parts(mean, variance, slope, held, order)
    return mass + (0.5 / SMALLEST) * variance * (curvature - held), [*moments]


def _parts(
    mean: Array, variance: Array, slope: Array, curvature: Array, order: int
) -> tuple[Array, tuple[Array, Array], list[Array]]:
    """Return the mass, the share of the positive part and of a density at zero, and moments.

    On its positive part the weight times the density of a is that of a Gaussian with mean
    (m + s v)/r and variance v/r, r = 1 − c v.
    """
    xp, scale = namespace(mean), safe_scale(variance)
    rest = 1 - curvature * variance
    root = xp.sqrt(rest)
    growth = 0.5 * (mean * mean * curvature + (2 * mean + slope * variance) * slope) / rest
    centre, width, ratio = (mean + slope * variance) / rest, scale / root, mean / scale
    held, density, positive = xp.clip(growth, max=LARGEST), pdf(ratio), centre > 0
    # below zero the weight times the density at the threshold is the density of a at zero
    weight = xp.where(positive, xp.exp(xp.where(positive, held, 0 * held)), density) / root
    powers = _powers(centre, width, order)
    mass = xp.clip(weight * powers[0] + cdf(-ratio), min=float(xp.finfo(mean.dtype).tiny))
    share, *moments = (weight / mass * power for power in powers)
    log_mass = xp.log(mass) + xp.where(positive, growth - held, 0 * held)
    return log_mass, (share, density / mass / scale), moments


def _powers(mean: Array, scale: Array, order: int) -> list[Array]:
    """Return E[(m + σ x)₊ᵏ] of a standard normal x for the powers 0, 1, … up to ``order`` ≥ 2.

    For m ≤ 0 they are divided by the normal density at m/σ.
    """
    xp, positive, squared = namespace(mean), mean > 0, scale * scale
    ratio = xp.abs(mean) / scale
    unit = xp.where(positive, pdf(ratio), xp.ones_like(ratio))
    zeroth, first, second = (unit * tail for tail in scaled_tail_moments(ratio))
    powers = [
        xp.where(positive, 1 - zeroth, zeroth),
        scale * first + xp.clip(mean, min=0.0),
        xp.where(positive, mean * mean + squared * (1 - second), squared * second),
    ]
    for power in range(2, order):
        terms = mean * powers[-1] + power * squared * powers[-2]
        powers.append(xp.clip(terms, min=0.0))
    return powers


def _statistics(m: Array, v: Array, s: Array, c: Array) -> tuple[Array, ...]:
    """Return log mass, E h, E h² and after them the derivatives of each by all four arguments.

    By Price's theorem the derivative of an expectation of g by m is E g′, that by v ½ E g″,
    where g′ has a step at zero.
    """
    log_mass, (share, density), (e1, e2, e3, e4) = _parts(m, v, s, c, 4)
    by_m = s * share + c * e1
    by_v = 0.5 * ((s * s + c) * share + 2 * s * c * e1 + c * c * e2 + s * density)
    first_by_m = share + s * e1 + c * e2 - e1 * by_m
    second_by_m = 2 * e1 + s * e2 + c * e3 - e2 * by_m
    bend = 2 * s * share + (3 * c + s * s) * e1 + 2 * s * c * e2 + c * c * e3 + density
    first_by_v = 0.5 * bend - e1 * by_v
    bend = 2 * share + 4 * s * e1 + (5 * c + s * s) * e2 + 2 * s * c * e3 + c * c * e4
    second_by_v = 0.5 * bend - e2 * by_v
    crossed = e3 - e1 * e2
    slopes = (
        *(by_m, by_v, e1, 0.5 * e2),
        *(first_by_m, first_by_v, e2 - e1 * e1, 0.5 * crossed),
        *(second_by_m, second_by_v, crossed, 0.5 * (e4 - e2 * e2)),
    )
    return log_mass, e1, e2, *slopes


_with_slopes = elementwise_of_statistics(_statistics, 3)
