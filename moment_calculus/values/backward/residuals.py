"""What functions of one Gaussian add together: Cov(f(x), g(x)) beyond their gains."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from moment_calculus.numerics.arrays import Array, transpose
from moment_calculus.values.ancestry import affine_line
from moment_calculus.values.backward.cotangents import Cotangent, products
from moment_calculus.values.backward.limits import check_spread
from moment_calculus.values.covariances import elementwise_covariance
from moment_calculus.values.gaussian import Gaussian


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
