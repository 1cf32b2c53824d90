"""Simplexes and Cholesky factors of correlations: chains of pieces of what is left.

Component l is f(x_l) ∏_{i<l} g(x_i) of independent coordinates x, the last one ∏ g(x_i).
With f the logistic function and g = 1 − f it is a simplex, with tanh and 1/cosh a row of
a Cholesky factor. Means and covariances are exact; of dependent coordinates see
``dependent_sticks``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.functions.table import Integrated, activation
from moment_calculus.numerics.arrays import Array, constants, diagonal, namespace, times_rows
from moment_calculus.operations.elementwise.unary import exponential_parts, scale_shift
from moment_calculus.operations.shapes.coordinates import (
    Image,
    Support,
    image_of,
    is_of_independent,
)
from moment_calculus.operations.shapes.dependent_sticks import (
    Pieces,
    chain_at,
    moments_by_points,
)
from moment_calculus.operations.shapes.indexing import index
from moment_calculus.operations.shapes.moves import Moved
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.values import Gaussian, Spread, Step, Ties, cross_covariance
from moment_calculus.values.deferred import as_function
from moment_calculus.values.elementwise import affine
from moment_calculus.values.step import Added, Product

__all__ = ["CORRELATION_FACTOR", "SIMPLEX", "is_simplex"]


class _Pieces(NamedTuple):
    """Moments of f(x) and g(x) for every coordinate, each [..., k]."""

    mean: Array  # E f
    rest: Array  # E g
    variance: Array
    rest_variance: Array
    covariance: Array  # of f and g
    slope: Array  # E f′
    rest_slope: Array


class _Chain(NamedTuple):
    """Moments of the components of a chain."""

    mean: Array  # [..., k + 1]
    covariance: Array  # [..., k + 1, k + 1]
    slopes: Array  # expected derivatives by the coordinates, [..., k + 1, k]


def _chain(parts: _Pieces) -> _Chain:
    """Return the moments of all components."""
    xp, one = namespace(parts.mean), parts.mean[..., :1] * 0 + 1
    means = xp.concat([parts.mean, one], axis=-1)
    variances = xp.concat([parts.variance, 0 * one], axis=-1)
    before, spread = _left(parts)
    second = before * before + spread
    variance = spread * (means * means + variances) + before * before * variances
    lead = before[..., :-1], second[..., :-1], spread[..., :-1]
    crossed = lead[1] * parts.covariance + lead[2] * parts.mean * parts.rest
    below = _carried(crossed, parts.rest, means)
    slopes = _carried(lead[0] * parts.rest_slope, parts.rest, means)
    identity = constants(np.eye(means.shape[-1]), means)
    zeros = xp.zeros_like(below[..., :1])
    square = xp.concat([below, zeros], axis=-1)
    covariance = square + square.mT + variance[..., None] * identity
    own = (lead[0] * parts.slope)[..., None, :] * identity[:, :-1]
    return _Chain(before * means, covariance, slopes + own)


def _left(parts: _Pieces) -> tuple[Array, Array]:
    """Return mean and variance of what is left before each component, [..., k + 1]."""
    xp = namespace(parts.rest)
    mean, variance = parts.rest[..., 0] * 0 + 1, parts.rest[..., 0] * 0
    means, variances = [mean], [variance]
    for stick in range(parts.rest.shape[-1]):
        rest, spread = parts.rest[..., stick], parts.rest_variance[..., stick]
        variance = variance * (rest * rest + spread) + mean * mean * spread
        mean = mean * rest
        means.append(mean)
        variances.append(variance)
    return xp.stack(means, axis=-1), xp.stack(variances, axis=-1)


def _carried(first: Array, rest: Array, last: Array) -> Array:
    """Return first_k ∏_{k<i<l} rest_i last_l for k < l, else zero, [..., l, k]."""
    xp, size = namespace(first), first.shape[-1]
    one_hot = constants(np.eye(size), first)
    row = 0 * first
    rows = [row]
    for stick in range(size):
        row = row * rest[..., stick : stick + 1] + first * one_hot[stick]
        rows.append(row * last[..., stick + 1 : stick + 2])
    return xp.stack(rows, axis=-2)


# ---------------------------------------------------------------------------------------------
# Simplexes


def _offsets(coordinates: Gaussian) -> Array:
    """Return log k, …, log 1, by which the transform to a simplex shifts its coordinates."""
    size = coordinates.shape[-1]
    return constants(np.log(np.arange(size, 0, -1)), coordinates.mean)


def _simplex(coordinates: Gaussian) -> Gaussian:
    """Return the simplex [..., k + 1] of coordinates [..., k]."""
    shifted = coordinates.mean - _offsets(coordinates)
    if is_of_independent(coordinates):
        chain = _independent_simplex(shifted, coordinates.variance)
    else:
        joint = coordinates.joint_covariance()
        chain = _Chain(*moments_by_points(shifted, joint, _logistic_pieces))
    return Gaussian(
        chain.mean,
        _spread(chain.covariance, coordinates),
        _Chained((coordinates,), chain.slopes),
        ties=_ties(coordinates),
        propagation=coordinates.propagation,
    )


def _independent_simplex(mean: Array, variance: Array) -> _Chain:
    mean, variance = activation("sigmoid").moments(mean, variance)
    slope = mean * (1 - mean) - variance
    return _chain(_Pieces(mean, 1 - mean, variance, variance, -variance, slope, -slope))


def _logistic_pieces(x: Array) -> Pieces:
    xp = namespace(x)
    logistic = 0.5 * (1 + xp.tanh(x / 2))
    left = 0.5 * (1 - xp.tanh(x / 2))
    return Pieces(logistic, left, logistic * left, -logistic)


def _ties(coordinates: Gaussian) -> Ties:
    """Return the ties of what is made of coordinates in each element of the batch."""
    return Ties.FEATURES if coordinates.batch_independent else Ties.ALL


@dataclass(frozen=True, eq=False)
class _Chained(Step):
    """Step of a chain, which passes covariances on by its expected derivatives."""

    inputs: tuple[Gaussian, ...] = field()
    slopes: Array

    def through(self, input_index: int, cross: Array) -> Array:
        return self.slopes @ cross

    def own(self, value: Gaussian) -> Added:
        """Return the covariance beyond that of the linear part."""
        linear = self.slopes @ self.inputs[0].joint_covariance() @ self.slopes.mT
        rest = value.joint_covariance() - linear
        return Added(diagonal(rest), lambda cotangent: times_rows(rest, cotangent))

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int | None:
        return axis if axis != -1 else None


def _spread(covariance: Array, coordinates: Gaussian) -> Spread:
    return Spread(diagonal(covariance), covariance, coordinates.propagation.may_sweep)


def logits_of_sticks(value: Any) -> Gaussian | None:
    """Return x of the sticks S(x) of a simplex, [..., k]; None of other values."""
    image = image_of(value)
    if image is None or image.support is not SIMPLEX:
        return None
    return affine(image.coordinates, 1.0, -_offsets(image.coordinates))


def _logs_of_sticks(coordinates: Gaussian) -> tuple[Array, Array]:
    """Return E log f and E log g of each coordinate of a simplex, [..., k]."""
    shifted = coordinates.mean - _offsets(coordinates)
    log = partial(activation("logsigmoid").expectation, variance=coordinates.variance)
    return log(shifted), log(-shifted)


def expected_log_simplex(coordinates: Gaussian) -> Array:
    """Return E log of the components of a simplex, [..., k + 1]."""
    log, rest = _logs_of_sticks(coordinates)
    xp, zero = namespace(log), 0 * log[..., :1]
    before = xp.cumulative_sum(xp.concat([zero, rest], axis=-1), axis=-1)
    return before + xp.concat([log, zero], axis=-1)


def log_simplex(value: Any) -> Array | None:
    """Return E log of the components of a simplex or of rows of some; None of other values."""
    return _of_rows(value, lambda simplex, image: expected_log_simplex(image.coordinates))


def is_simplex(value: Any) -> bool:
    """Whether a value is a simplex, or rows of some."""
    return _of_rows(value, lambda simplex, image: simplex.mean) is not None


def _of_rows(value: Any, compute: Callable[[Gaussian, Image], Array]) -> Array | None:
    """Return what is computed of a simplex, with its rows moved as those of a value; else None."""
    moves: list[Moved] = []
    while isinstance(value, Gaussian):
        if (image := image_of(value)) is not None:
            break
        if not isinstance(value.step, Moved) or value.step.source.shape[-1:] != value.shape[-1:]:
            return None
        moves.append(value.step)
        value = value.step.source
    else:
        return None
    if image.support is not SIMPLEX:
        return None
    rows = compute(value, image)  # of one simplex, where the value repeats it
    result = namespace(rows).broadcast_to(rows, (*value.shape[:-1], rows.shape[-1]))
    for move in reversed(moves):
        result = None if result is None else move.rearrange_rows(result)
    return result


def _simplex_slope(coordinates: Gaussian) -> Array:
    log, rest = _logs_of_sticks(coordinates)
    later = constants(np.arange(rest.shape[-1], 0, -1), rest)
    return namespace(log).sum(log + later * rest, axis=-1)


SIMPLEX = Support(_simplex, _simplex_slope)


# ---------------------------------------------------------------------------------------------
# Cholesky factors of correlation matrices


def _inverse_cosh(x: Array) -> Array:
    xp = namespace(x)
    return 1 / xp.cosh(xp.clip(x, min=-40.0, max=40.0))


def _pieces_of_rows(mean: Array, variance: Array, in_rows: Callable[[Array], Array]) -> _Pieces:
    """Return tanh and 1/cosh of each coordinate, in rows [..., d, d − 1] that end in one."""
    tanh, spread = activation("tanh").moments(mean, variance)
    rest, rest_spread = Integrated(_inverse_cosh).moments(mean, variance)
    centred = lambda x: (namespace(x).tanh(x) - tanh) * (_inverse_cosh(x) - rest)  # noqa: E731
    covariance = Integrated(centred).expectation(mean, variance)
    slope, rest_slope = rest * rest + rest_spread, -(covariance + tanh * rest)
    parts = tanh, rest, spread, rest_spread, covariance, slope, rest_slope
    first, *others = (in_rows(part) for part in parts)
    last = constants(np.eye(first.shape[-2])[:, :-1], first)  # the rest of a row is its diagonal
    return _Pieces(first + last, *others)


def _in_rows(array: Array) -> Array:
    """Return the coordinates [..., d(d − 1)/2] as rows [..., d, d − 1], filled with zeros."""
    size = dimension(array.shape[-1])
    row, column = np.tril_indices(size, -1)
    indices = np.zeros((size, size - 1), dtype=int)
    indices[row, column] = np.arange(len(row))
    below = constants(_rows_of_ones(size), array)
    return array[..., indices] * below


def dimension(count: int) -> int:
    """Return d of a Cholesky factor [d, d] with d(d − 1)/2 coordinates."""
    return (1 + math.isqrt(1 + 8 * count)) // 2


def _correlation_factor(coordinates: Gaussian) -> Gaussian:
    """Return the Cholesky factor [..., d, d], whose rows are as independent as the coordinates."""
    independent = is_of_independent(coordinates)
    chain = _chain_of_rows(coordinates)
    return Gaussian(
        chain.mean,
        _spread(chain.covariance, coordinates),
        _Rows((coordinates,)),
        ties=_ties(coordinates) if independent else Ties.ALL,
        propagation=coordinates.propagation,
    )


@dataclass(frozen=True, eq=False)
class _Rows(Step):
    """Step of the rows of a Cholesky factor."""

    inputs: tuple[Gaussian, ...] = field()


def _chain_of_rows(coordinates: Gaussian, shift: Array | None = None) -> _Chain:
    """Return the moments of the rows, of coordinates whose means are shifted by [..., d, k]."""
    mean, variance = coordinates.mean, coordinates.variance
    if is_of_independent(coordinates):
        if shift is None:
            return _chain(_pieces_of_rows(mean, variance, _in_rows))
        return _chain(
            _pieces_of_rows(mean[..., None, :] + shift, variance + 0 * shift, _row_by_row)
        )
    return _dependent_rows(coordinates, shift)


def _row_by_row(array: Array) -> Array:
    """Return for each row its own coordinates, from all for each row [..., d, k]."""
    rows = constants(places_of_rows(array.shape[-1]), array)
    return namespace(array).sum(rows * array[..., None, :], axis=-1)


def places_of_rows(count: int) -> np.ndarray:
    """Return which coordinate stands where in the rows [d, d − 1], [d, d − 1, k]."""
    size = dimension(count)
    row, column = np.tril_indices(size, -1)
    places = np.zeros((size, size - 1, count))
    places[row, column, np.arange(count)] = 1
    return places


def _dependent_rows(coordinates: Gaussian, shift: Array | None) -> _Chain:
    """Return the rows of a Cholesky factor with dependent coordinates."""
    size = dimension(coordinates.shape[-1])
    rows = constants(places_of_rows(coordinates.shape[-1]), coordinates.mean)
    covariance = rows @ coordinates.joint_covariance()[..., None, :, :] @ rows.mT
    mean = _in_rows(coordinates.mean)
    mean = mean if shift is None else mean + _row_by_row(shift)
    pieces = partial(_pieces_at, _rows_of_ones(size)[:, None], np.eye(size)[:, None, :-1])
    return _Chain(*moments_by_points(mean, covariance, pieces))


def _rows_of_ones(size: int) -> np.ndarray:
    """Return where the rows [d, d − 1] have coordinates."""
    return np.tril(np.ones((size, size - 1)), -1)


def _pieces_at(below: np.ndarray, last: np.ndarray, x: Array) -> Pieces:
    """Return the pieces of rows at points, where coordinates stand and the diagonal does."""
    xp, kept = namespace(x), constants(below, x)
    tanh, rest = xp.tanh(x), _inverse_cosh(x)
    taken = kept * tanh + constants(last, x)
    return Pieces(taken, kept * rest, kept * rest * rest, -kept * tanh)


def rows_at(points: Array) -> tuple[Array, Array]:
    """Return Cholesky factors [n, d, d] by coordinates [n, k], their slopes [n, d, d, d − 1]."""
    size = dimension(points.shape[-1])
    return chain_at(_pieces_at(_rows_of_ones(size), np.eye(size)[:, :-1], _in_rows(points)))


@dataclass(frozen=True, eq=False)
class _ScaledRows(Product):
    """Step of a Cholesky factor with its rows scaled."""

    inputs: tuple[Gaussian, Any] = field()


def _scaled_rows(factor: Gaussian, scale: Any) -> Gaussian | None:
    """Return diag(s) L of exponentials s that may depend on L; None of other scales.

    Exact where log s and the coordinates x of L are jointly Gaussian: E[e^{a log s} g(x)] is E e^{a
    log s} times E g(x + a Cov(x, log s)).
    """
    scale, image = as_function(scale), image_of(factor)
    if image is None:
        return None
    coordinates, parts = image.coordinates, exponential_parts(scale)
    one_factor = coordinates.mean.ndim == 1 and factor.mean.ndim == 2
    if parts is None or not one_factor or (scale.shape and scale.shape[-1] != 1):
        return None
    base, rate, constant = parts
    logs = scale_shift(index(base, (..., 0)) if scale.shape else base, rate).gaussian()
    logs = broadcast(logs, factor.shape[:1], -1)
    cross, xp = cross_covariance(logs, coordinates), namespace(factor.mean)
    if cross is None:
        return None
    means, seconds = [], []
    for power in (1, 2):
        chain = _chain_of_rows(coordinates, power * cross)
        growth = constant**power * xp.exp(power * logs.mean + power**2 / 2 * logs.variance)[:, None]
        means.append(growth * chain.mean)
        seconds.append(growth * (chain.mean**2 + diagonal(chain.covariance)))
    return Gaussian(
        means[0],
        Spread(seconds[1] - means[0] ** 2),
        _ScaledRows((factor, scale.gaussian())),
        ties=Ties.ALL,
        propagation=factor.propagation,
    )


def _expected_log_inverse_cosh(coordinates: Gaussian) -> Array:
    mean, variance = coordinates.mean, coordinates.variance
    return _LOG_2 - mean + activation("logsigmoid").expectation(2 * mean, 4 * variance)


_LOG_2 = math.log(2)


def expected_log_diagonal(coordinates: Gaussian) -> Array:
    """Return E log of the diagonal of a Cholesky factor, [..., d]."""
    rows = _in_rows(_expected_log_inverse_cosh(coordinates))
    return namespace(rows).sum(rows, axis=-1)


def _factor_slope(coordinates: Gaussian) -> Array:
    logs = _expected_log_inverse_cosh(coordinates)
    row, column = np.tril_indices(dimension(logs.shape[-1]), -1)
    return namespace(logs).sum(constants(1 + row - column, logs) * logs, axis=-1)


CORRELATION_FACTOR = Support(_correlation_factor, _factor_slope, 2, times=_scaled_rows)
