"""E log(1 + x²) of a Gaussian, with derivatives: the expected log-likelihood of Student's t.

The derivative by μ is 2 Re E 1/(x + i), the Faddeeva function at (μ + i)/√(2v). By
Weideman's rational approximation it is, up to a pole, p(Z)/(L − iz)² with a polynomial p
of Z = (L + iz)/(L − iz). As dZ/dz = 2iL/(L − iz)², its integral is the integral q of p,
up to a logarithm. With d = 1 + L√(2v) − iμ in the place of L − iz nothing is singular at
v = 0.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from moment_calculus.numerics.arrays import Array, namespace, safe_scale
from moment_calculus.numerics.derivatives import elementwise_of_statistics
from moment_calculus.numerics.normal import is_single_precision

DEGREES = {True: 16, False: 32}  # of the polynomial, in single and in double precision
PIECE = 1 << 15  # bytes of elements computed together: their powers stay in a processor's cache


@functools.cache
def _rule(degree: int) -> tuple[float, np.ndarray]:
    """Return L, and the coefficients of −q √π/L + constant, highest power first."""
    length = math.sqrt(degree / math.sqrt(2))
    angles = math.pi * np.arange(-16 * degree + 1, 16 * degree) / (16 * degree)
    squares = (length * np.tan(angles / 2)) ** 2
    density = np.exp(-squares) * (length**2 + squares) / (32 * degree)
    powers = np.arange(1, degree + 1)
    integrated = np.cos(np.outer(powers, angles)) @ density / powers
    coefficients = np.append(-math.sqrt(math.pi) / length * integrated[::-1], 0.0)
    coefficients[-1] = -np.polyval(coefficients, -1.0)
    return length, coefficients


def _times(one: tuple, other: tuple) -> tuple:
    """Return the product of complex numbers, as real and imaginary parts."""
    return one[0] * other[0] - one[1] * other[1], one[0] * other[1] + one[1] * other[0]


def _polynomial(coefficients: np.ndarray, point: tuple) -> tuple[tuple, tuple, tuple]:
    """Return a polynomial, its derivative and half of its second one, by Horner's rule."""
    zero = 0 * point[0]
    value, slope, bend = (zero + coefficients[0], zero), (zero, zero), (zero, zero)
    for coefficient in coefficients[1:]:
        bend = _plus(_times(bend, point), slope)
        slope = _plus(_times(slope, point), value)
        value = _plus(_times(value, point), (coefficient, 0.0))
    return value, slope, bend


def _plus(one: tuple, other: tuple) -> tuple:
    return one[0] + other[0], one[1] + other[1]


def _values_and_partials(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Return the expectation, and its derivatives by μ and v."""
    xp, (length, coefficients) = namespace(mean), _rule(DEGREES[is_single_precision(mean)])
    wide = length * math.sqrt(2) * safe_scale(variance)
    edge = 1 + wide
    size = edge + abs(mean)  # in these units nothing overflows
    real, imaginary = edge / size, mean / size
    square = real * real + imaginary * imaginary
    inverse = real / (size * square), imaginary / (size * square)  # 1/d
    shift = 2 * wide * inverse[0], 2 * wide * inverse[1]  # Z + 1
    value, slope, bend = _polynomial(coefficients, (shift[0] - 1, shift[1]))
    slope, bend = _times(shift, slope), _times(_times(shift, shift), bend)
    rest = 1 - 2 * (bend[0] + slope[0]), -2 * (bend[1] + slope[1])
    return (
        2 * (xp.log(size * xp.sqrt(square)) + value[0]),
        2 * ((1 - slope[0]) * inverse[1] - slope[1] * inverse[0]),
        _times(_times(inverse, inverse), rest)[0],
    )


_expected = elementwise_of_statistics(_values_and_partials, 1, piece=PIECE)


def expected_log1p_square(mean: Array, variance: Array) -> Array:
    """Return E log(1 + x²) of Gaussian x, of the broadcast shape of mean and variance."""
    # Measured absolute errors for σ from 1e-3 to 1e2 and |μ| up to 800: 2e-12 in double
    # and 1e-6 in single precision, of the derivatives 1e-14 and 3e-7. Source: Weideman
    # (1994).
    xp = namespace(mean)
    return _expected(*xp.broadcast_arrays(mean, variance))
