"""Recognition of normalisations (α x + β M₁)·(a M₂ + b M₁² + e)^(−½), centred or not.

With M₁ = Σ x/n and M₂ = Σ x²/n, a centred feature is x − M₁, and a variance is M₂ − M₁².
The parts keep their coefficients, so that one pass or two, any scale, and n or n − 1 are
recognised.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from moment_calculus.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.operations.elementwise.factors import positive_joint
from moment_calculus.operations.elementwise.products import multiply
from moment_calculus.operations.elementwise.unary import scale_shift
from moment_calculus.operations.normalised import normalisation
from moment_calculus.operations.recognition.base import (
    Certain,
    ElementPart,
    GroupPart,
    Reduction,
    Symbolic,
    View,
    fallback_rule,
    recognition_rule,
    reduction_of,
    resolved,
)
from moment_calculus.operations.shapes.moves import permute
from moment_calculus.operations.shapes.reshaping import reshape
from moment_calculus.values import Gaussian

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


class SumOfSquares(Symbolic):
    """A sum of squares that is not one of the parts of a normalisation."""

    def __init__(self, shape: tuple[int, ...], sites: frozenset[str]) -> None:
        super().__init__(shape, lambda: np.zeros(shape), sites)


def raise_unrecognised(sites: frozenset[str]) -> NoReturn:
    """Raise UnsupportedMoments for the root of a sum of squares outside of a normalisation."""
    raise UnsupportedMoments(
        "a standard deviation or norm of random components depends on what it is divided into, "
        "and this is not recognised as a normalisation",
        sites=sites,
        remedy="normalise the components of whole axes by their own mean and standard deviation, "
        "(x - mean)/sqrt(variance + eps), or by the root of their mean square, without masks"
        + OR_DRAW,
    )


_PARTS = (Square, Quadratic, SumOfSquares)
_COMBINED = ("add", "subtract", "multiply", "maximum", "select")


def _check_integrated(squares: SumOfSquares) -> None:
    """Raise unless the sum is a function of few Gaussians, as that of two standard deviations."""
    try:
        value = squares.value()
    except UnsupportedMoments:
        value = None
    if positive_joint(resolved(value)) is None:
        raise_unrecognised(squares.sites)


@fallback_rule
def _dispersion(operation: str, *operands: Any, axes: tuple[int, ...] = ()) -> Any:
    """Recognise sums, multiples and selections of squares that no other rule recognises."""
    parts = [operand for operand in operands if isinstance(operand, _PARTS)]
    others = [operand for operand in operands if not isinstance(operand, _PARTS)]
    if not parts or any(hasattr(other, "sites") for other in others):
        return None
    sites = frozenset().union(*(part.sites for part in parts))
    if operation in ("sqrt", "rsqrt") and isinstance(parts[0], SumOfSquares):
        return _check_integrated(parts[0])
    if operation == "reduce_sum":
        result_shape = [n for axis, n in enumerate(parts[0].shape) if axis not in axes]
        return SumOfSquares(tuple(result_shape), sites)
    if operation in ("add", "subtract") and all(type(part) is Square for part in parts):
        return None  # x² + c is an elementwise function of x, as in sqrt(x² + c)
    if operation in _COMBINED or (operation == "divide" and operands[0] is parts[0]):
        shapes = [tuple(getattr(operand, "shape", ())) for operand in operands]
        return SumOfSquares(np.broadcast_shapes(*shapes), sites)
    return None


class Root(GroupPart):
    """The power ½ or −½ of a quadratic, times a gain; on its own it has no moments."""

    def __init__(self, quadratic: Quadratic | Root, power: float, gain: Any = None) -> None:
        super().__init__(quadratic.reduction, quadratic)
        self.coefficients: tuple[float, float, Any] = quadratic.coefficients
        self.power, self.gain = power, gain
        if gain is not None:
            self.shape = np.broadcast_shapes(self.shape, tuple(gain.shape))
            self._index = lambda: np.broadcast_to(quadratic.index, self.shape)
        self.set_fallback(lambda: raise_unrecognised(self.sites))

    def moved(self, move: Any, plain: Any) -> Any:
        """Return the part after a shape operation; None with a gain, which is not moved."""
        return super().moved(move, plain) if self.gain is None else None


@recognition_rule("sqrt", Quadratic)
def _sqrt(quadratic: Quadratic) -> Root | None:
    return _root(quadratic, 0.5)


@recognition_rule("rsqrt", Quadratic)
def _rsqrt(quadratic: Quadratic) -> Root | None:
    return _root(quadratic, -0.5)


def _root(quadratic: Quadratic, power: float) -> Root | None:
    """Return the root of a quadratic with M₂; without it, it is a function of the mean."""
    return Root(quadratic, power) if quadratic.coefficients[0] else None


@recognition_rule("reciprocal", Root)
def _reciprocal(root: Root) -> Any:
    return Root(root, -root.power) if root.gain is None else None


@recognition_rule("multiply", View, Root, commutes=True)
@recognition_rule("multiply", Centred, Root, commutes=True)
def _normalised_by_product(features: View | Centred, root: Root) -> Any:
    done = _normalised(features, root) if root.power < 0 else None
    return _with_gain(root, features) if done is None else done


@recognition_rule("divide", View, Root)
@recognition_rule("divide", Centred, Root)
def _normalised_by_quotient(features: View | Centred, root: Root) -> Any:
    if root.power < 0 or root.gain is not None:
        return None
    inverse = Root(root, -0.5)
    done = _normalised(features, inverse)
    return _with_gain(inverse, features) if done is None else done


@recognition_rule("multiply", Root, Certain, commutes=True)
def _gained(root: Root, gain: Any) -> Any:
    return _with_gain(root, np.asarray(gain) if is_number(gain) else gain)


@recognition_rule("divide", Certain, Root)
def _gained_by_quotient(gain: Any, root: Root) -> Any:
    inverse = _reciprocal(root)
    return None if inverse is None else _gained(inverse, gain)


def _with_gain(root: Root, gain: Any) -> Any:
    return Root(root, root.power, resolved(gain)) if root.gain is None else None


def _normalised(features: View | Centred, root: Root) -> Any:
    alpha, beta = getattr(features, "alpha", 1.0), getattr(features, "beta", 0.0)
    centred = _is_centred(alpha, beta, root)
    if centred is None or not _is_own_centred(features, root):
        return None
    a, _, e = root.coefficients
    result = _over_groups(
        features.view,
        root.reduction,
        lambda value: normalisation.normalise(value, eps=e / a, centred=centred),
    )
    factor = alpha / a**0.5
    if result is None or root.gain is None:
        return result if result is None or factor == 1 else scale_shift(result, factor)
    return multiply(result if factor == 1 else scale_shift(result, factor), root.gain)


def _is_own_centred(features: View | Centred, root: Root) -> bool:
    centre = getattr(features, "reduction", None)
    return is_own(features.view, root) and (centre is None or root.reduction.same(centre))


def _is_centred(alpha: float, beta: float, root: Root) -> bool | None:
    """Whether the mean is removed (True) or not (False), consistently; None if neither holds."""
    a, b, e = root.coefficients
    if not a > 0 or (is_number(e) and e < 0):
        return None
    if abs(a + b) <= ROUNDING * a and abs(alpha + beta) <= ROUNDING * abs(alpha):
        return True
    return False if b == beta == 0 else None


def _over_groups(
    view: View, reduction: Reduction, function: Callable[[Any], Gaussian]
) -> Gaussian | None:
    """Apply a function of trailing features to the groups of a view, in any layout."""
    axes = reduction.axes_in(view)
    if axes is not None:
        return _over_axes(view, axes, function)
    whole = reduction.view
    if view.index.size != whole.index.size:
        return None
    if not np.array_equal(whole.index.reshape(view.shape), view.index):
        return None
    return reshape(_over_axes(whole, reduction.axes, function), view.shape)


def _over_axes(view: View, axes: tuple[int, ...], function: Callable[[Any], Gaussian]) -> Gaussian:
    order = [axis for axis in range(len(view.shape)) if axis not in axes] + list(axes)
    moved = tuple(view.shape[axis] for axis in order)
    lead, size = moved[: len(moved) - len(axes)], math.prod(view.shape[axis] for axis in axes)
    value = permute(view.value().gaussian(), order)
    result = function(reshape(value, (*lead, size)))
    return permute(reshape(result, moved), [order.index(axis) for axis in range(len(order))])
