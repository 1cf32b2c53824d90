"""E |S⁻¹ r|², and moments of S z, of a random Cholesky factor S = diag(s) L of dependent parts.

Forward substitution in S w = r is a chain of rotations u_i ← cosh(x_ij) u_i − sinh(x_ij) w_j of
u = r / s, where x are the coordinates of L. Written out, |w|² is a sum of c e^{a·x − ℓ_m − ℓ_n}
r_m r_n with ℓ = log s; where r, x and ℓ are jointly Gaussian, each term is the second moment of r
under a shifted mean: E e^{b·y} r_m r_n = e^{b·μ + ½ b·V b} ((m + C b)_m (m + C b)_n + R_mn) for
y = (x, ℓ) with mean μ, covariance V, and covariance C with r.

Given x, S z is a sum of products of exponentials and Gaussians, whose moments are closed forms; x
has the fixed points of ``shapes/dependent_sticks``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments, random_covariance
from moment_calculus.numerics.arrays import (
    Array,
    axis_moved,
    cast_clipped,
    constants,
    diagonal,
    identity_like,
    known_numbers,
    namespace,
    outer,
    to_float64,
)
from moment_calculus.operations.elementwise.drivers import is_not_gaussian
from moment_calculus.operations.elementwise.sums import add
from moment_calculus.operations.elementwise.unary import (
    exponential_parts,
    is_value,
    scale_shift,
    shape_of,
)
from moment_calculus.operations.linear.correlations import Factor
from moment_calculus.operations.shapes.concatenation import concatenate
from moment_calculus.operations.shapes.dependent_sticks import regular_root, standard_points
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.operations.shapes.sticks import places_of_rows, rows_at
from moment_calculus.values import Gaussian, Spread, Step
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
    logarithms = _logarithms(factor.scales, factor.correlation, size)
    joint = _joint(residual, factor.coordinates, logarithms)
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


def _joint(*parts: Any) -> Gaussian:
    """Return r, the coordinates and the logarithms of the scales as one vector."""
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


# ---------------------------------------------------------------------------------------------
# Products


@dataclass(frozen=True, eq=False)
class _AtPoints:
    """S at points of its coordinates x = μ + R u; every E is that given x."""

    rows: Array  # L, [n, d, d]
    slopes: Array  # of L by the coordinates of each row, [n, d, d, d − 1]
    growth: Array  # weights times E e^ℓ, [n, d]
    growths: Array  # weights times E e^{ℓ_i + ℓ_j}, [n, d, d]
    powers: Array  # 1 and u, [n, 1 + k]
    root: Array  # R, [k, k]
    lean: Array  # of ℓ by u, [d, k]

    def flat(self, rows: Array) -> Array:
        """Return rows [n, …, d] times the powers, [n, …, d (1 + k)]."""
        powers = self.powers
        shape = (len(powers), *(1,) * (rows.ndim - 1), powers.shape[-1])
        xp = namespace(rows)
        products = rows[..., None] * xp.reshape(powers, shape)
        return xp.reshape(products, (*rows.shape[:-1], -1))


def _at_points(coordinates: Gaussian, logarithms: Any) -> _AtPoints:
    """Return what is known of S at points, of ℓ [d] that may depend on the coordinates."""
    both = concatenate([coordinates, logarithms], -1)
    mean, covariance = to_float64(both.mean), to_float64(both.joint_covariance())
    xp, count = namespace(mean), coordinates.shape[-1]
    nodes, weights = (constants(part, mean) for part in standard_points(count))
    root = regular_root(covariance[:count, :count])
    lean = xp.linalg.solve(root, covariance[:count, count:]).mT
    rest = covariance[count:, count:] - lean @ lean.mT
    logs = mean[count:] + nodes @ lean.mT + diagonal(rest) / 2
    growths = xp.exp(logs[:, :, None] + logs[:, None, :] + rest)
    rows, slopes = rows_at(mean[:count] + nodes @ root.mT)
    powers = xp.concat([xp.ones_like(nodes[:, :1]), nodes], axis=-1)
    growth, growths = weights[:, None] * xp.exp(logs), weights[:, None, None] * growths
    return _AtPoints(rows, slopes, growth, growths, powers, root, lean)


@dataclass(frozen=True, eq=False)
class _Turned(Step):
    """Step of S z, by its expected slopes: exact covariances with Gaussians (Stein's lemma)."""

    inputs: tuple[Gaussian, ...] = field()  # z, the coordinates, and the logarithms if random
    slopes: tuple[Array, ...]
    logarithms: Any

    def through(self, input_index: int, cross: Array) -> Array:
        return self.slopes[input_index] @ cross

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        return tuple(range(1, len(self.inputs)))

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian | None:
        vectors, coordinates, *logarithms = inputs
        return _turned(vectors, coordinates, *logarithms or [self.logarithms])


def times_dependent_factor(factor: Factor, vectors: Any) -> Gaussian | None:
    """Return S z for Gaussian z [..., d] that may depend on S; None of other values.

    Exact for two rows, by points of the coordinates for more: see ``shapes/dependent_sticks``.
    """
    size = factor.correlation.shape[-1]
    if not isinstance(vectors, Gaussian) or is_not_gaussian(vectors):
        return None
    logarithms = _logarithms(factor.scales, factor.correlation, size)
    if len(shape_of(logarithms)) != 1 or len(factor.coordinates.shape) != 1:
        return None
    known = _turned(vectors, factor.coordinates, logarithms) if vectors.axis == -1 else None
    return known or _turned(_gathered(vectors), factor.coordinates, logarithms)


def _turned(vectors: Gaussian, coordinates: Gaussian, logarithms: Any) -> Gaussian | None:
    """Return S z of vectors z, of the coordinates of L, and of the logarithms of the scales."""
    try:
        joint = _joint(vectors, coordinates, logarithms)
        covariance = joint.joint_covariance()
    except UnsupportedMoments:  # rearranged so that covariances are not known
        return None
    at = _at_points(coordinates, logarithms)
    moments = _moments_of_product(at, to_float64(joint.mean), to_float64(covariance))
    mean, covariance, *slopes = (cast_clipped(part, vectors.mean) for part in moments)
    random = tuple(part for part in (vectors, coordinates, logarithms) if is_value(part))
    return Gaussian(
        mean,
        Spread(diagonal(covariance), covariance, vectors.propagation.has_full_covariance),
        _Turned(random, tuple(slopes[: len(random)]), logarithms),
        propagation=vectors.propagation,
    )


def _gathered(value: Gaussian) -> Gaussian:
    """Return rearranged elements of a vector with their trailing axis as feature axis."""
    source, moves = value, list[Moved]()
    while len(source.shape) > 1 and isinstance(source.step, Moved) and _keeps(source.step):
        moves.insert(0, source.step)
        source = source.step.source
    move = lambda array: reduce(lambda part, step: step.move(part), moves, array)  # noqa: E731
    numbers = known_numbers(move, source.mean)
    return value if len(source.shape) > 1 or numbers is None else index(source, (numbers,))


def _keeps(step: Moved) -> bool:
    """Whether the elements of a value are those of its source, and not computed from several."""
    return not (step.combines_elements or step.adds_elements)


def _moments_of_product(at: _AtPoints, mean: Array, covariance: Array) -> tuple[Array, ...]:
    """Return moments and expected slopes of S z, from those of z, x and ℓ [..., 2d + k]."""
    xp, size = namespace(mean), at.rows.shape[-1]
    stop = mean.shape[-1] - size
    lean = xp.linalg.solve(at.root, covariance[..., size:stop, :size]).mT  # of z by u
    cross = (covariance[..., :size, stop:] - lean @ at.lean.mT).mT  # Cov(ℓ_i, z_a), [..., d, d]
    rest = covariance[..., :size, :size] - lean @ lean.mT
    shifted = partial(_shifted, mean[..., :size], lean)
    ones, twos = shifted(cross), shifted(cross[..., :, None, :] + cross[..., None, :, :])
    flat = at.flat(at.rows)
    first = xp.sum(at.growth[..., None] * flat, axis=0)
    mean = xp.sum(first * ones, axis=-1)
    second, matrices = _second_moments(at.growths, flat, twos)
    wide = (size, lean.shape[-1] + 1)
    parts = xp.reshape(matrices, (size, size, *wide, *wide))[..., 0][..., 0, :]
    second = second + xp.sum(parts * rest[..., None, None, :, :], axis=(-2, -1))
    by_rows = xp.sum(at.growth[..., None, None] * at.flat(at.slopes.mT), axis=0)
    by_rows = xp.sum(by_rows * ones[..., None, :], axis=-1)[..., None, :]
    by_coordinates = (by_rows @ constants(places_of_rows(lean.shape[-1]), mean))[..., 0, :]
    by_vectors = xp.reshape(first, (size, size, -1))[..., 0]
    by_logs = mean[..., None] * identity_like(mean)
    return mean, second - outer(mean, mean), by_vectors, by_coordinates, by_logs


def _shifted(mean: Array, lean: Array, cross: Array) -> Array:
    """Return E z + Cov(ℓ, z), [..., d], beside its slopes by u, [..., d (1 + k)]."""
    xp, extra = namespace(mean), cross.ndim - mean.ndim
    wide = (*mean.shape[:-1], *(1,) * extra)
    constant = (xp.reshape(mean, (*wide, -1)) + cross)[..., None]
    leans = xp.reshape(lean, (*wide, *lean.shape[-2:]))
    leans = xp.broadcast_to(leans, (*cross.shape, lean.shape[-1]))
    both = xp.concat([constant, leans], axis=-1)
    return xp.reshape(both, (*cross.shape[:-1], -1))


def _second_moments(growths: Array, flat: Array, shifted: Array) -> tuple[Array, Array]:
    """Return Σ_n g_ij (H_i·p_ij)(H_j·p_ij), [..., d, d], and Σ_n g_ij H_iᵀ H_j."""
    xp = namespace(flat)
    rows = axis_moved(flat, 0, 1)  # [d, n, d (1 + k)]
    weights = axis_moved(growths, 0, -1)[..., None]
    matrices = (weights * rows[:, None]).mT @ rows[None]
    mapped = (shifted[..., None, :] @ matrices)[..., 0, :]
    return xp.sum(mapped * shifted, axis=-1), matrices
