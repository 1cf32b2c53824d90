"""What steps add together: functions of one Gaussian, and one step at several positions.

A sweep backwards pulls derivatives through each step by its gains (its expected derivatives), and
adds what the step itself contributes. Two contributions are not apart: functions f and g of one x
add Cov(f(x), g(x)) − f̄′ ḡ′ Var x together, and positions of one row share the weights, so that
what weights and activations add at two positions is dependent. :mod:`.sweep` asks for both here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np

from moment_calculus.numerics.arrays import (
    Array,
    axis_moved,
    device,
    identity_like,
    namespace,
    transpose,
)
from moment_calculus.values.ancestry import affine_line
from moment_calculus.values.backward.cotangents import Cotangent, products
from moment_calculus.values.backward.limits import check_spread
from moment_calculus.values.covariances import elementwise_covariance
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.lags import MOST_POSITIONS, Along, Offset, shifted
from moment_calculus.values.protocols import KnowsLags
from moment_calculus.values.step import Added

Lags = dict[Offset, Array]
"""Covariances of what a step adds to components, by how far apart they are."""


class Between(NamedTuple):
    """What a step adds at two positions of a row together."""

    position_axes: list[int]  # the negative axes of the positions
    matrix: Array  # [*others, positions, positions], zero on the diagonal


class SharedResiduals:
    """Functions of the same Gaussian that one sweep met."""

    def __init__(self) -> None:
        self._groups: dict[int, list[tuple[Gaussian, Cotangent]]] = {}

    def note(self, value: Gaussian, cotangent: Cotangent) -> None:
        """Remember a value with its derivatives, if it is a function of a Gaussian."""
        if value.step.function is not None:
            root = affine_line(value.step.function[0])[-1]
            self._groups.setdefault(root.serial, []).append((value, cotangent))

    def parts(self) -> Iterator[tuple[Gaussian, Array]]:
        """Yield what pairs of functions of one Gaussian add, [*rows, K, K]."""
        for group in self._groups.values():
            for first, second in combinations(group, 2):
                if (covariance := _covariance_of_pair(*first, *second)) is not None:
                    yield first[0], covariance


def _spread_rows(value: Gaussian, cotangent: Cotangent, row: int) -> Cotangent:
    """Return the derivatives with rows on an axis of their own; raise if they take too much."""
    if cotangent.carried[row] is not None:
        check_spread(value, cotangent, row)
    return cotangent.spread(row)


def _covariance_of_pair(
    first: Gaussian, one: Cotangent, second: Gaussian, two: Cotangent
) -> Array | None:
    if first.shape != second.shape or first.axis != second.axis:
        return None
    for row, axes in enumerate(zip(one.carried, two.carried, strict=True)):
        if axes[0] != axes[1]:
            one, two = (_spread_rows(first, part, row) for part in (one, two))
    joint = elementwise_covariance(first, second)
    (base, _), (other, _) = first.step.function, second.step.function  # type: ignore[misc]
    between = elementwise_covariance(base, other)
    if joint is None or between is None:
        return None
    gains = first.step.passed_gain(first) * second.step.passed_gain(second)  # type: ignore[attr-defined]
    left = one.by_rows()
    right = two.by_rows() * two.by_rows(two.wide(joint - gains * between))
    half = products(left, right)
    return half + transpose(half)  # Cov(first, second) and Cov(second, first)


def noise_of(
    value: Gaussian, cotangent: Cotangent, absorbable: tuple[int, ...]
) -> tuple[tuple[int, ...], Added | None, Between | None]:
    """Return the indices of inputs that enter as noise, and what the step adds, also between.

    Absorbable weights do so at one position of a row; at several where what the step adds
    between positions is asked for anyway.
    """
    step: Any = value.step
    if absorbable and math.prod(_positions(value, cotangent).values()) == 1:
        return absorbable, step.absorbed(value), None
    own = step.own(value)
    if own is None:
        return (), None, None
    if absorbable and (between := _between(value, cotangent, absorbed=True)) is not None:
        return absorbable, step.absorbed(value), between
    return (), own, _between(value, cotangent, absorbed=False)


def between_positions(between: Between, cotangent: Cotangent) -> Array:
    """Return what a step adds at two positions of a row together, [*rows, K, K]."""
    xp, array = namespace(cotangent.array), cotangent.array
    last, matrix = between
    sizes = [cotangent.shape[axis] for axis in last]
    others = [axis for axis in range(-array.ndim, 0) if axis not in (*last, -array.ndim)]
    order = [axis % array.ndim for axis in (*others, -array.ndim, *last)]
    moved = xp.permute_dims(array, tuple(order))  # [*slots, *others, K, *positions]
    flat = xp.reshape(moved, (*moved.shape[: len(others) + 1], math.prod(sizes)))
    image = xp.reshape(flat @ matrix, tuple(moved.shape))
    back = xp.permute_dims(image, tuple(order.index(axis) for axis in range(array.ndim)))
    return products(cotangent.by_rows(), cotangent.by_rows(back))


def _matrix_from_lags(lags: Lags, position_axes: Sequence[int], sizes: Sequence[int]) -> Array:
    """Return the covariances of all positions but those with themselves, from lags."""
    xp, count = namespace(next(iter(lags.values()))), math.prod(sizes)
    numbers = np.arange(count).reshape(sizes)
    source, parts, start = np.zeros((count, count), dtype=np.int64), [], 1
    for offset, lagged in lags.items():
        apart = tuple(offset[axis] for axis in position_axes)
        one, two = (part.reshape(-1) for part in shifted(numbers, apart))
        source[one, two] = source[two, one] = start + np.arange(len(one))
        others = [axis for axis in range(lagged.ndim) if axis not in position_axes]
        moved = xp.permute_dims(lagged, (*others, *position_axes))
        parts.append(xp.reshape(moved, (*moved.shape[: len(others)], -1)))
        start += len(one)
    together = xp.concat([xp.zeros_like(parts[0][..., :1]), *parts], axis=-1)
    index = xp.asarray(source.reshape(-1), device=device(together))
    return xp.reshape(xp.take(together, index, axis=-1), (*together.shape[:-1], count, count))


def _between(value: Gaussian, cotangent: Cotangent, absorbed: bool) -> Between | None:
    """Return what a step adds to covariances of positions; None if that is not known."""
    positions, step = _positions(value, cotangent), value.step
    if not isinstance(step, KnowsLags):
        return None
    if not 1 < math.prod(2 * size - 1 for size in positions.values()) <= 2 * MOST_POSITIONS + 1:
        return None
    position_axes = [axis for axis, size in positions.items() if size > 1]
    if len(position_axes) == 1 and not absorbed:
        whole = step.own_along(value, Along(position_axes[0]))
        if whole is not None:  # in one pass, which is compiled sooner than one for each distance
            return Between(position_axes, _without_diagonal(whole, position_axes[0]))
    lags: Lags = {}
    for offset in product(*(range(1 - size, size) for size in positions.values())):
        if offset > (0,) * len(value.shape):
            lagged = step.own_lag(value, offset, absorbed)
            if lagged is None:
                return None
            lags[offset] = lagged
    axes = [axis + len(value.shape) for axis in position_axes]
    return Between(
        position_axes, _matrix_from_lags(lags, axes, [positions[axis] for axis in position_axes])
    )


def _without_diagonal(whole: Array, axis: int) -> Array:
    """Return covariances [positions, *shape] as matrices, but those of positions themselves."""
    xp = namespace(whole)
    matrix = axis_moved(axis_moved(whole, axis, -1), 0, -1)
    return xp.where(identity_like(matrix) > 0, xp.zeros_like(matrix), matrix)


def _positions(value: Gaussian, cotangent: Cotangent) -> dict[int, int]:
    """Return the axes of a value, and along those of positions in a row their sizes, else one."""
    apart = (*cotangent.carried, value.axis)
    axes = zip(range(-len(value.shape), 0), value.shape, strict=True)
    return {axis: 1 if axis in apart else size for axis, size in axes}
