"""Adaptive quadrature that is relatively accurate in the tails, independent of the package."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np
from scipy.integrate import quad

Function = Callable[[float], float]


def density(x: float, mean: float, scale: float) -> float:
    z = (x - mean) / scale
    return float(np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * scale))


def expectation(
    function: Function, mean: float, variance: float, kinks: Sequence[float] = (0.0,)
) -> float:
    """E[function(x)] for x ~ N(mean, variance), piecewise over mean ± 14 standard deviations."""
    scale = float(np.sqrt(variance))
    edges = {mean + scale * step for step in np.arange(-14, 15)}
    low, high = min(edges), max(edges)
    edges |= {kink for kink in (*kinks, *np.linspace(-30, 30, 31)) if low < kink < high}
    points = sorted(edges)
    pieces = [
        quad(lambda x: function(x) * density(x, mean, scale), left, right, epsrel=1e-12)[0]
        for left, right in itertools.pairwise(points)
    ]
    return float(np.sum(np.sort(pieces)))


def hermite(function: Function, mean: float, variance: float, order: int) -> float:
    """E[function(x) He_order(z)] / √order!."""
    scale = float(np.sqrt(variance))
    basis = np.polynomial.hermite_e.HermiteE.basis(order)
    norm = float(mp.sqrt(mp.factorial(order)))
    return expectation(lambda x: function(x) * basis((x - mean) / scale) / norm, mean, variance)


def step_covariance(a: float, b: float, rho: float) -> float:
    """Cov(1{x > −a}, 1{y > −b}) by Price's theorem, at 30 digits."""
    return float(_price(a, b, rho)[0])


def rectifier_covariance(a: float, b: float, rho: float) -> float:
    """Cov((x + a)₊, (y + b)₊) likewise."""
    with mp.workdps(30):
        total, turned = _price(a, b, rho)
        return float(rho * (mp.ncdf(a) * mp.ncdf(b) + total) - turned)


@functools.cache
def _price(a: float, b: float, rho: float) -> tuple[mp.mpf, mp.mpf]:
    """∫ φ₂(a, b; r) dr and ∫ r φ₂(a, b; r) dr from 0 to ρ, in the angle asin r."""
    with mp.workdps(30):
        a, b, rho = mp.mpf(a), mp.mpf(b), mp.mpf(rho)
        squares, product = a * a + b * b, 2 * a * b
        peak = max(a * a, b * b) / 2  # mp.quad stops on an absolute error: scale the peak to 1

        def integrand(y: mp.mpf) -> mp.mpc:
            r, root = mp.tanh(y), mp.sech(y)
            value = root * mp.exp(peak - (squares - product * r) / (2 * root * root))
            return mp.mpc(value, value * r)

        end = mp.atanh(rho) if abs(rho) < 1 else mp.sign(rho) * 40
        edges = [end * (mp.mpf(i) / 24) ** 2 for i in range(25)]  # dense at 0, where it may peak
        both = mp.quad(integrand, edges, method="gauss-legendre") * mp.exp(-peak) / (2 * mp.pi)
        return both.real, both.imag


def relative(actual: float, expected: float) -> float:
    return float(abs(actual - expected) / abs(expected)) if expected else float(abs(actual))
