"""The parts of a normalisation: first and second moments of features over groups.

With M₁ = Σ x/n and M₂ = Σ x²/n, a centred feature is x − M₁, and a variance is M₂ − M₁².
The parts keep their coefficients, so that one pass or two, any scale, and n or n − 1 are
recognised.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.recognition.base import ElementPart, GroupPart, Reduction, View, reduction_of
from moment_calculus.recognition.rules import Certain, recognition_rule

ROUNDING = 1e-6  # of coefficients in single precision


class Mean(GroupPart):
    """The part β M₁ over groups."""

    def __init__(self, reduction: Reduction, beta: float, like: GroupPart | None = None) -> None:
        super().__init__(reduction, like)
        self.beta = beta


class Centred(ElementPart):
    """The part α x + β M₁."""

    def __init__(self, view: View, reduction: Reduction, alpha: float, beta: float) -> None:
        super().__init__(view)
        self.reduction, self.alpha, self.beta = reduction, alpha, beta


class Square(ElementPart):
    """The part (α x + β M₁)², or x² without groups."""

    def __init__(self, view: View, reduction: Reduction | None, alpha: float, beta: float) -> None:
        super().__init__(view)
        self.reduction, self.alpha, self.beta = reduction, alpha, beta


class Quadratic(GroupPart):
    """The part a M₂ + b M₁² + e."""

    def __init__(
        self,
        reduction: Reduction,
        coefficients: tuple[float, float, Any],
        like: GroupPart | None = None,
    ) -> None:
        super().__init__(reduction, like)
        self.coefficients = coefficients  # a, b and e; e may be an array of one element

    def scaled(self, factor: float, by: Callable = operator.mul) -> Quadratic:
        """Return the product with a number, or the quotient for ``operator.truediv``."""
        a, b, e = self.coefficients
        return Quadratic(self.reduction, (by(a, factor), by(b, factor), by(e, factor)), self)

    @property
    def positive(self) -> bool:
        """Whether it cannot be negative: M₂ ≥ M₁²."""
        a, b, e = self.coefficients
        return a >= 0 and a + b >= -ROUNDING * a and isinstance(e, int | float) and e >= 0


def is_number(operand: Any) -> bool:
    """Whether an operand is a known number."""
    return isinstance(operand, int | float) and not isinstance(operand, bool)


@recognition_rule("reduce_sum", View)
def _sum(view: View, axes: tuple[int, ...]) -> Any:
    reduction = reduction_of(view, axes)
    return None if reduction is None else Mean(reduction, reduction.count)


@recognition_rule("reduce_sum", Centred)
def _sum_of_centred(features: Centred, axes: tuple[int, ...]) -> Any:
    reduction = reduction_of(features.view, axes)
    if reduction is None or not reduction.same(features.reduction):
        return None
    return Mean(reduction, reduction.count * (features.alpha + features.beta))


@recognition_rule("reduce_sum", Square)
def _sum_of_squares(squares: Square, axes: tuple[int, ...]) -> Any:
    reduction = reduction_of(squares.view, axes)
    if reduction is None or not (squares.reduction is None or reduction.same(squares.reduction)):
        return None
    alpha, beta = squares.alpha, squares.beta
    coefficients = (alpha**2, (2 * alpha + beta) * beta, 0.0)
    return Quadratic(reduction, coefficients).scaled(reduction.count)


@recognition_rule("multiply", Mean, Certain, commutes=True)
def _scaled_mean(mean: Mean, factor: Any) -> Any:
    return Mean(mean.reduction, mean.beta * factor, mean) if is_number(factor) else None


@recognition_rule("divide", Mean, Certain)
def _divided_mean(mean: Mean, divisor: Any) -> Any:
    return Mean(mean.reduction, mean.beta / divisor, mean) if is_number(divisor) else None


@recognition_rule("subtract", View, Mean)
def _centred(view: View, mean: Mean) -> Any:
    return Centred(view, mean.reduction, 1.0, -mean.beta) if is_own(view, mean) else None


@recognition_rule("subtract", Mean, View)
def _negative_centred(mean: Mean, view: View) -> Any:
    return Centred(view, mean.reduction, -1.0, mean.beta) if is_own(view, mean) else None


def is_own(view: View, part: GroupPart) -> bool:
    """Whether a part belongs to groups of a view, with its components beside their elements."""
    reduction = part.reduction
    return view.source is reduction.view.source and reduction.is_aligned(part, view.index)


@recognition_rule("square", View)
def _square(view: View) -> Square:
    return Square(view, None, 1.0, 0.0)


@recognition_rule("square", Centred)
def _square_of_centred(features: Centred) -> Square:
    return Square(features.view, features.reduction, features.alpha, features.beta)


@recognition_rule("square", Mean)
def _square_of_mean(mean: Mean) -> Quadratic:
    return Quadratic(mean.reduction, (0.0, mean.beta**2, 0.0), mean)


@recognition_rule("multiply", View, View)
def _product(left: View, right: View) -> Any:
    return _square(left) if left.shows_same(right) else None


@recognition_rule("multiply", Centred, Centred)
def _product_of_centred(left: Centred, right: Centred) -> Any:
    same = left.reduction.same(right.reduction) and left.view.shows_same(right.view)
    same = same and (left.alpha, left.beta) == (right.alpha, right.beta)
    return _square_of_centred(left) if same else None


@recognition_rule("multiply", Mean, Mean)
def _product_of_means(left: Mean, right: Mean) -> Any:
    coefficients = 0.0, left.beta * right.beta, 0.0
    return Quadratic(left.reduction, coefficients, left) if _side_by_side(left, right) else None


def _side_by_side(left: GroupPart, right: GroupPart) -> bool:
    same = left.shape == right.shape and left.reduction.same(right.reduction)
    return same and np.array_equal(left.index, right.index)


def _combined(left: Quadratic, right: Quadratic, sign: float) -> Any:
    if not _side_by_side(left, right):
        return None
    (a, b, e), (c, d, f) = left.coefficients, right.coefficients
    return Quadratic(left.reduction, (a + sign * c, b + sign * d, e + sign * f), left)


@recognition_rule("add", Quadratic, Quadratic)
def _sum_of_quadratics(left: Quadratic, right: Quadratic) -> Any:
    return _combined(left, right, 1.0)


@recognition_rule("subtract", Quadratic, Quadratic)
def _difference_of_quadratics(left: Quadratic, right: Quadratic) -> Any:
    return _combined(left, right, -1.0)


@recognition_rule("add", Quadratic, Certain, commutes=True)
def _raised(quadratic: Quadratic, offset: Any) -> Any:
    if not (is_number(offset) or getattr(offset, "shape", None) == ()):
        return None
    a, b, e = quadratic.coefficients
    return Quadratic(quadratic.reduction, (a, b, e + offset), quadratic)


@recognition_rule("multiply", Quadratic, Certain, commutes=True)
def _scaled(quadratic: Quadratic, factor: Any) -> Any:
    return quadratic.scaled(factor) if is_number(factor) else None


@recognition_rule("divide", Quadratic, Certain)
def _divided(quadratic: Quadratic, divisor: Any) -> Any:
    return quadratic.scaled(divisor, operator.truediv) if is_number(divisor) else None


@recognition_rule("maximum", Quadratic, Certain, commutes=True)
def _clipped(quadratic: Quadratic, bound: Any) -> Any:
    """Ignore a bound at or below zero, by which frameworks guard a variance against rounding."""
    idle = is_number(bound) and bound <= 0 and quadratic.positive
    return quadratic if idle else None


@recognition_rule("abs", Quadratic)
def _absolute(quadratic: Quadratic) -> Any:
    return quadratic if quadratic.positive else None
