"""E |S⁻¹ r|² of a random Cholesky factor S = diag(s) L whose parts depend on each other.

Forward substitution in S w = r is a chain of rotations u_i ← cosh(x_ij) u_i − sinh(x_ij) w_j of
u = r / s, where x are the coordinates of L. Written out, |w|² is a sum of c e^{a·x − ℓ_m − ℓ_n}
r_m r_n with ℓ = log s; where r, x and ℓ are jointly Gaussian, each term is the second moment of r
under a shifted mean: E e^{b·y} r_m r_n = e^{b·μ + ½ b·V b} ((m + C b)_m (m + C b)_n + R_mn) for
y = (x, ℓ) with mean μ, covariance V, and covariance C with r.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, random_covariance
from moment_calculus.numerics.arrays import Array, cast_clipped, constants, namespace, to_float64
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import (
    exponential_parts,
    is_value,
    scale_shift,
    shape_of,
)
from moment_calculus.operations.linear.correlations import Factor
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian
from moment_calculus.values.spread import broadcast_shape

LARGEST = 4  # most rows of L: 8 terms for two rows, 77 for three, 884 for four

_Powers = tuple[int, ...]  # of e by each coordinate
_Linear = dict[tuple[_Powers, int], float]  # coefficients of e^{a·x} u_m by a and m


class _Terms(NamedTuple):
    """The terms c e^{b·y} r_m r_n of a squared length."""

    coefficients: np.ndarray  # [t]
    powers: np.ndarray  # b, [t, k + d]
    first: np.ndarray  # m, [t]
    second: np.ndarray  # n, [t]


def expected_squared_length(residual: Any, factor: Factor) -> Array:
    """Return E |S⁻¹ r|², [...], of r [..., d] that depends on S, or of dependent coordinates.

    Exact where r, the coordinates and the logarithms of the scales are jointly Gaussian.
    """
    size = factor.correlation.shape[-1]
    if size > LARGEST:
        raise UnsupportedMoments(
            f"a Cholesky factor of {size} rows with dependent coordinates, or that depends on the "
            f"residual: its inverse is written out for up to {LARGEST}",
            sites=factor.correlation.sites,
            remedy="use DVIGuide" + OR_DRAW,
        )
    joint = _joint(residual, factor)
    mean, covariance = to_float64(joint.mean), to_float64(joint.joint_covariance())
    terms = _terms(size)
    xp, powers = namespace(mean), constants(terms.powers, mean)
    between = covariance[..., :size, size:] @ powers.mT  # of r with b·y, [..., d, t]
    spread = xp.sum((covariance[..., size:, size:] @ powers.mT) * powers.mT, axis=-2)
    growth = xp.exp((mean[..., None, size:] @ powers.mT)[..., 0, :] + spread / 2)
    shifted = mean[..., :size, None] + between
    first, second, every = terms.first, terms.second, np.arange(len(terms.first))
    moment = shifted[..., first, every] * shifted[..., second, every]
    moment = moment + covariance[..., first, second]
    lengths = xp.sum(constants(terms.coefficients, mean) * growth * moment, axis=-1)
    return cast_clipped(lengths, joint.mean)


def _joint(residual: Any, factor: Factor) -> Gaussian:
    """Return r, the coordinates and the logarithms of the scales as one vector."""
    size = factor.correlation.shape[-1]
    parts = [residual, factor.coordinates, _logarithms(factor.scales, factor.correlation, size)]
    batch = broadcast_shape(*(shape_of(part)[:-1] for part in parts))
    return concatenate([_repeated(part, batch) for part in parts], -1)


def _repeated(part: Any, batch: tuple[int, ...]) -> Any:
    shape = (*batch, shape_of(part)[-1])
    if is_value(part):
        return broadcast(part, shape, -1)
    return namespace(part).broadcast_to(part, shape)


def _logarithms(scales: tuple[Any, ...], correlation: Gaussian, size: int) -> Any:
    """Return the logarithms of the product of all scales, [..., d]."""
    total: Any = 0 * correlation.mean[..., 0]
    for scale in scales:
        logarithm = _logarithm(scale, correlation)
        if is_value(logarithm):
            logarithm = broadcast(logarithm, (*logarithm.shape[:-1], size), -1)
        random = is_value(logarithm) or is_value(total)
        total = add(total, logarithm).gaussian() if random else total + logarithm
    return total


def _logarithm(scale: Any, correlation: Gaussian) -> Any:
    if not is_value(scale):
        xp = namespace(correlation.mean)
        return xp.log(scale + 0 * correlation.mean[..., 0])
    parts = exponential_parts(scale)
    if parts is None:
        raise random_covariance(scale.sites)
    base, rate, constant = parts
    plain = isinstance(constant, int | float)
    shift = math.log(constant) if plain else namespace(constant).log(constant)
    return scale_shift(base, rate, shift).gaussian()


@cache
def _terms(size: int) -> _Terms:
    """Return the terms of |w|² for S w = r with d rows."""
    total: dict[tuple[_Powers, int, int], float] = defaultdict(float)
    for row in _rows(size):
        for (a, m), one in row.items():
            for (b, n), other in row.items():
                total[tuple(np.add(a, b)), min(m, n), max(m, n)] += one * other
    found = [(c, *key) for key, c in total.items() if c]
    coefficients, powers, first, second = map(np.array, zip(*found, strict=True))
    scales = -(np.eye(size)[first] + np.eye(size)[second])
    return _Terms(coefficients, np.hstack([powers, scales]), first, second)


def _rows(size: int) -> list[_Linear]:
    """Return w in u, of S w = r."""
    count = size * (size - 1) // 2
    rows: list[_Linear] = []
    entries = iter(range(count))
    for i in range(size):
        row: _Linear = {((0,) * count, i): 1.0}
        for j in range(i):
            entry = next(entries)
            row = _sum(_times(row, entry, 0.5, 0.5), _times(rows[j], entry, -0.5, 0.5))
        rows.append(row)
    return rows


def _times(row: _Linear, entry: int, rising: float, falling: float) -> _Linear:
    """Return a row times ``rising`` eˣ + ``falling`` e⁻ˣ of one coordinate."""
    result: _Linear = {}
    for sign, factor in ((1, rising), (-1, falling)):
        for (powers, m), coefficient in row.items():
            moved = (*powers[:entry], powers[entry] + sign, *powers[entry + 1 :])
            result[moved, m] = coefficient * factor
    return result


def _sum(one: _Linear, other: _Linear) -> _Linear:
    return {key: one.get(key, 0.0) + other.get(key, 0.0) for key in {**one, **other}}
