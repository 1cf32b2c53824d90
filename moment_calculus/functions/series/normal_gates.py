"""Moments of GELU and of its tanh form where there is no double precision: series in one variable.

With g_n the n-th derivative by μ of the density of N(0, 1 + v) at μ, E[He_n(x) φ(x)] = ± g_n: what
the normal distribution smooths keeps its coefficients in these functions. For f(x) = x S(x),
S(x) + S(−x) = 1, two even functions have such series, made once by least squares:
f(x) − xΦ(x), and x² S(x) S(−x), which gives Var = M(μ − M) + v M′ − E[x² S(x) S(−x)] by Stein's
lemma. Derivatives by μ shift the index n. That difference cancels for small v, where Mehler's
series Σ vⁿ (∂ⁿM)² / n! takes its place. All is computed for μ ≤ 0 and reflected, and in units of a
width w, of f(wx)/w, with which fewer terms suffice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from moment_calculus.functions.series.fitted import reflected
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.normal.univariate import upper_tail_beside
from moment_calculus.numerics.special import elementwise, namespace

# Widths w of the normal distribution, and coefficients: errors of 7e-8 and 1e-7 of x² S(x) S(−x),
# 2e-8 of f(x). With w = 1 the series of GELU has two terms.
FITS = {"gelu": (1.0, 12), "gelu_tanh": (0.8, 8)}
REACH = 12.0  # t beyond which all is zero in single precision
SMALL, TERMS = 0.07, 4  # the variance up to which Mehler's series is used, and its terms


def _coefficients(values: np.ndarray, x: np.ndarray, count: int) -> list[float]:
    """Of even functions in He_{2k}(x) φ(x)."""
    orders = 2 * np.arange(count)
    sizes = np.sqrt(scipy.special.factorial(orders))
    basis = np.polynomial.hermite_e.hermevander(x, 2 * count - 2)[:, ::2] / sizes
    density = np.exp(x * x / -2) / math.sqrt(2 * math.pi)
    return (np.linalg.lstsq(basis * density[:, None], values, rcond=None)[0] / sizes).tolist()


@functools.lru_cache(maxsize=8)
def _series(activation: Any) -> tuple[tuple[float, ...], ...]:
    """Coefficients in g_0, g_2, …, in units of the width.

    Returns:
        Those of f″, of f(x) − xΦ(x), and of x² S(x) S(−x).
    """
    width, count = FITS[activation.name]
    x = np.linspace(0.0, 9.0, 1801)
    value, opposite = activation(width * x) / width, activation(-width * x) / width
    smooth: list[float] = []  # of f(x) − xΦ(x)
    if activation.name != "gelu":
        smooth = _coefficients(value - x * scipy.special.ndtr(x), x, count)
    first, *others = smooth or [0.0]
    curve = [1.0, first - 1.0, *others]  # that of xΦ(x) is φ(x) (2 − x²)
    return tuple(curve), tuple(smooth), tuple(_coefficients(-value * opposite, x, count))


class _Sums(NamedTuple):
    """Sums Σ c_k g_{2k+n} at one place, by Clenshaw's rule for every second Hermite polynomial.

    XLA computes each result by itself, with all that leads to it; such a sum costs four operations
    a term, less than the functions g_n that it consists of.
    """

    step: Array  # g_1 / g_0, which is −μ q²
    rest: Array  # q²
    first: Array  # g_0

    def sum(self, coefficients: Sequence[float], order: int) -> Any:
        """The sum for n = order; without coefficients it is zero."""
        if not coefficients:
            return 0.0
        odd = order % 2
        coefficients = (0.0,) * (order // 2) + (*coefficients,)
        square, both = self.step * self.step, self.rest * self.rest
        found, after = coefficients[-1], None
        for k in range(len(coefficients) - 2, -1, -1):
            level = square - (4 * k + 1 + 2 * odd) * self.rest
            known: Any = coefficients[k]
            if after is not None:  # ahead of the product that the last term is needed for
                known = known - (2 * (k + 1) * (2 * k + 1 + 2 * odd) * both) * after
            found, after = level * found + known, found
        return found * (self.step * self.first if odd else self.first)


def _statistics(activation: Any, mean: Array, variance: Array) -> tuple[Array, ...]:
    """Mean, variance, and the derivatives of each by μ and by v."""
    width, _ = FITS[activation.name]
    found = _below(activation, mean / width, variance / width**2)
    units = (width, 1.0, 1.0, 1 / width, 1 / width, 1.0, 1 / width**2)
    *below, turn = (part * unit for part, unit in zip(found, units, strict=True))
    return reflected(mean, variance, tuple(below), turn)


def _below(activation: Any, mean: Array, variance: Array) -> tuple[Array, ...]:
    """Statistics at −|μ|, as :func:`reflected` wants them, in units of the width: of f(wx)/w."""
    xp = namespace(mean)
    curve, smooth, product = _series(activation)
    rest, wide = 1 / (1 + variance), xp.sqrt(1 + variance)
    t = xp.clip(xp.abs(mean) / wide, max=REACH)
    place = -t * wide  # μ
    fall, q = xp.exp(t * t * -0.5) / math.sqrt(2 * math.pi), rest * wide
    density, tail = fall * q, upper_tail_beside(t, fall)
    # XLA keeps a quotient for all that use it, and computes other parts anew: long series are kept.
    kept = (lambda part: part * wide / wide) if smooth else (lambda part: part)
    g = _Sums(t * q, rest, density)
    centre = kept(place * tail + variance * density + g.sum(smooth, 0))
    gain = kept(tail + place * density * rest + g.sum(smooth, 1))
    bent = [gain, *(kept(g.sum(curve, n)) for n in range(TERMS - 1))]  # ∂M, ∂²M, …
    bent.append(g.sum(curve, TERMS - 1))
    far = xp.clip(variance, min=SMALL)
    spread = centre * (place - centre) - g.sum(product, 0) + gain * far
    by_mean = (gain * (place - 2 * centre) + centre - g.sum(product, 1)) / far + bent[1]
    by_variance = (
        0.5 * (bent[1] * (place - 2 * centre) + variance * bent[2] - g.sum(product, 2)) + gain
    )
    near = variance < SMALL
    low_spread, low_by_mean = _mehler(bent, xp.clip(variance, max=SMALL))
    return (
        centre,
        xp.where(near, low_spread * SMALL, spread) / far,
        gain,
        0.5 * bent[1],
        xp.where(near, low_by_mean, by_mean),
        by_variance,
        0.5 * bent[2],
    )


def _mehler(bent: list[Array], variance: Array) -> tuple[Any, ...]:
    """Var/v and its derivative by μ, Σ vⁿ⁻¹ (∂ⁿM)² / n!."""
    pairs = [(bent[n - 1] / math.factorial(n), bent[n - 1 : n + 1]) for n in range(1, TERMS + 1)]
    spread = (part * here for part, (here, _) in reversed(pairs))
    by_mean = (2 * part * after for part, (_, after) in reversed(pairs))
    return tuple(
        functools.reduce(lambda a, b: a * variance + b, terms) for terms in (spread, by_mean)
    )


@functools.lru_cache(maxsize=8)
def gated_moments(activation: Any) -> Callable[[Array, Array], tuple[Array, Array]]:
    """A function of mean and variance to both moments, with their derivatives.

    Measured errors in single precision: of the mean 3e-7 of √(1 + v), of the variance 2e-6 of v, of
    their derivatives by the mean 2e-7 and 5e-6, by the variance 5e-7 and 2e-6, in the same units.
    In the far left tail, where the moments are smaller than that, they are not relatively accurate.

    Args:
        activation: x S(x) with S(x) + S(−x) = 1, S like the normal distribution function, and with
            a width and a number of coefficients in ``FITS``.
    """
    together = functools.partial(_statistics, activation)

    def partials(mean: Array, variance: Array) -> Any:
        found = together(mean, variance)
        return found[2:4], found[4:]

    return elementwise(lambda *arrays: together(*arrays)[:2], partials, together=together)
