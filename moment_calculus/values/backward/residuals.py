"""What steps add together: functions of one Gaussian, and one step at several positions.

Functions f and g of x add Cov(f(x), g(x)) beyond their gains. Positions of one row share the
weights, so that what weights and activations add at two positions is dependent too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

from moment_calculus.numerics.arrays import Array, transpose
from moment_calculus.values.ancestry import affine_line
from moment_calculus.values.backward.cotangents import Cotangent, products
from moment_calculus.values.backward.limits import check_spread
from moment_calculus.values.covariances import elementwise_covariance
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.lags import shifted


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
                if (covariance := _of_pair(*first, *second)) is not None:
                    yield first[0], covariance


def _spread(value: Gaussian, cotangent: Cotangent, row: int) -> Cotangent:
    if cotangent.carried[row] is not None:
        check_spread(value, cotangent, row)
    return cotangent.spread(row)


def _of_pair(first: Gaussian, one: Cotangent, second: Gaussian, two: Cotangent) -> Array | None:
    if first.shape != second.shape or first.axis != second.axis:
        return None
    for row, axes in enumerate(zip(one.carried, two.carried, strict=True)):
        if axes[0] != axes[1]:
            one, two = (_spread(first, part, row) for part in (one, two))
    joint = elementwise_covariance(first, second)
    (base, _), (other, _) = first.step.function, second.step.function  # type: ignore[misc]
    between = elementwise_covariance(base, other)
    if joint is None or between is None:
        return None
    gains = first.step.passed_gain(first) * second.step.passed_gain(second)  # type: ignore[attr-defined]
    left = one.by_rows()
    right = two.by_rows() * two.by_rows(two.wide(joint - gains * between))
    half = products(left, right)
    return half + transpose(half)


MOST_OFFSETS = 64  # positions of a row are paired up to this number of distances


def between_positions(value: Gaussian, cotangent: Cotangent) -> Iterator[Array]:
    """Yield what a step adds at two positions of a row together, [*rows, K, K]."""
    for offset in _offsets(value, cotangent):
        lagged = value.step.own_lag(value, offset)
        if lagged is None:
            return
        still = (0,) * cotangent.lead
        first, second = shifted(cotangent.array, (*still, *offset))
        left = replace(cotangent, array=first).by_rows()
        right = replace(cotangent, array=second * lagged).by_rows()
        half = products(left, right)
        yield half + transpose(half)


def _offsets(value: Gaussian, cotangent: Cotangent) -> Sequence[tuple[int, ...]]:
    """Return the offsets between positions of a row, each pair of positions once."""
    apart = (*cotangent.carried, value.axis)
    axes = zip(range(-len(value.shape), 0), value.shape, strict=True)
    sizes = [1 if axis in apart else size for axis, size in axes]
    if math.prod(2 * size - 1 for size in sizes) > 2 * MOST_OFFSETS + 1:
        return ()
    every = product(*(range(1 - size, size) for size in sizes))
    return [offset for offset in every if offset > (0,) * len(sizes)]
