"""Functions of one input that curves are sums of, on arrays of any framework."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import constants, namespace

Array = Any


@dataclass(frozen=True)
class Interval:
    """Where the inputs of a curve lie."""

    low: Any
    high: Any

    @classmethod
    def of(cls, x: Array, between: tuple[float, float] | None) -> Interval:
        """Return the interval that is named, or that of the inputs."""
        if between is not None:
            return cls(*between)
        xp = namespace(x)
        return cls(xp.min(x), xp.max(x))

    @property
    def width(self) -> Any:
        """Return the length of the interval."""
        return self.high - self.low

    def shares(self, x: Array) -> Array:
        """Return where inputs are between the ends: 0 at the lower, 1 at the higher."""
        return (x - self.low) / self.width


def hilbert_functions(x: Array, interval: Interval, functions: int, boundary: float) -> Array:
    """Return the eigenfunctions of the Laplacian on an interval that is wider by a factor, [n, m].

    Source: Solin and Särkkä 2020, equation 20; Riutort-Mayol et al. 2023, equation 6.
    """
    number = constants(np.arange(1, functions + 1), x)
    place = (interval.shares(x)[..., None] - 0.5) / boundary + 0.5  # from 0 to 1
    height = (boundary * interval.width / 2) ** -0.5
    return height * namespace(x).sin(math.pi * place * number)


def hilbert_squares(x: Array, interval: Interval, functions: int, boundary: float) -> Array:
    """Return the eigenvalues, which are squares of angular frequencies, [m]."""
    number = constants(np.arange(1, functions + 1), x)
    return (math.pi * number / (boundary * interval.width)) ** 2


def _squared_exponential(squares: Array, height: Any, length: Any, exp: Callable) -> Any:
    decay = exp(-0.25 * squares * length**2)
    return height * (2 * math.pi) ** 0.25 * length**0.5 * decay


def _matern(half_order: int) -> Callable[..., Any]:
    """Return the root for smoothness ν = half_order / 2."""
    nu = half_order / 2
    level = 2 * math.sqrt(math.pi) * math.gamma(nu + 0.5) / math.gamma(nu)
    constant = (level / half_order**0.5) ** 0.5

    def root(squares: Array, height: Any, length: Any, exp: Callable) -> Any:
        decay = (1 + squares * length**2 / half_order) ** (-(nu + 0.5) / 2)
        return height * constant * length**0.5 * decay

    return root


# Roots of spectral densities by squares of frequencies, the height and length of the process, and
# the exponential function of the framework, as products from the left, whose moments are known.
# Source: Riutort-Mayol et al. 2023, equations 2 to 4.
KERNELS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "squared exponential": _squared_exponential,
        "matern 3/2": _matern(3),
        "matern 5/2": _matern(5),
    }
)


def kernel_root(kernel: str) -> Callable[..., Any]:
    """Return the root of the spectral density of a kernel; raise ValueError if it has no such."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r}: choose one of {', '.join(map(repr, KERNELS))}")
    return KERNELS[kernel]


def spline_functions(x: Array, interval: Interval, functions: int, degree: int) -> Array:
    """Return B-splines on knots in equal distances, whose sum is 1 within the interval, [n, m].

    Source: Eilers and Marx 1996; each is a sum of truncated powers, from its nearer end.
    """
    xp = namespace(x)
    first = constants(np.arange(functions) - degree, x)  # knot of each
    at = interval.shares(x)[..., None] * (functions - degree) - first
    at = xp.clip(xp.where(at > (degree + 1) / 2, degree + 1 - at, at), min=0.0)
    total = 0 * at
    for knot in range(degree // 2 + 1):
        sign = (-1) ** knot * math.comb(degree + 1, knot) / math.factorial(degree)
        total = total + sign * xp.clip(at - knot, min=0.0) ** degree
    return total
