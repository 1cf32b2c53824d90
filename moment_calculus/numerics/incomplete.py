"""The regularised incomplete beta function, which torch lacks."""

from __future__ import annotations

import array_api_compat

from moment_calculus.numerics.arrays import Array, betainc_but_of_torch, gammaln, namespace

MAX_TERMS = 20_000  # of the continued fraction, which takes about √max(a, b)
SMALLEST = 1e-30  # in place of a denominator of zero


def betainc(a: Array, b: Array, x: Array, rest: Array) -> Array:
    """Return I_x(a, b) of arrays that broadcast, for x and ``rest``, which is 1 − x."""
    is_torch = array_api_compat.is_torch_array(x)
    return _by_fraction(a, b, x, rest) if is_torch else betainc_but_of_torch(a, b, x)


def _by_fraction(a: Array, b: Array, x: Array, rest: Array) -> Array:
    """Return I_x(a, b) by a continued fraction (Abramowitz and Stegun 26.5.8)."""
    xp = namespace(x)
    a, b, x, rest = xp.broadcast_arrays(*(part + 0 * x for part in (a, b)), x, rest)
    mirrored = x > (a + 1) / (a + b + 2)  # I_x(a, b) = 1 − I_{1 − x}(b, a) converges faster
    a, b = xp.where(mirrored, b, a), xp.where(mirrored, a, b)
    x, rest = xp.where(mirrored, rest, x), xp.where(mirrored, x, rest)
    log_beta = gammaln(a) + gammaln(b) - gammaln(a + b)
    factor = xp.exp(a * xp.log(x) + b * xp.log(rest) - log_beta) / a
    result = factor * _beta_fraction(a, b, x)
    return xp.where(mirrored, 1 - result, result)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """Evaluate the fraction by Lentz's algorithm (Thompson and Barnett 1986)."""
    xp = namespace(x)
    last = 64 * float(xp.finfo(x.dtype).eps)

    def safe(number: Array) -> Array:
        return xp.where(xp.abs(number) < SMALLEST, SMALLEST, number)

    c = xp.ones_like(x)
    d = total = 1 / safe(1 - (a + b) * x / (a + 1))
    is_open = xp.ones_like(x, dtype=xp.bool)
    for m in range(1, MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / safe(1 + term * d), safe(1 + term / c)
            change = c * d
            total = total * change
        is_open = is_open & (xp.abs(change - 1) > last)  # rounding may move what has converged
        if not xp.any(is_open):
            break
    return total
