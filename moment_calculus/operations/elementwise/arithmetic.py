"""Operations on live values: sums and products, with their dependence.

Each returns a new value with the step that made it, so that the cross-covariance of any two values
can be computed later. Certain operands are plain arrays or numbers.
"""

from __future__ import annotations

import operator
from typing import Any

from moment_calculus.functions.table import activation
from moment_calculus.operations.elementwise.fusion import fused, is_chain, of_one_gaussian
from moment_calculus.operations.elementwise.multiplication import product_by_branches, product_of
from moment_calculus.operations.elementwise.positive import exponential_parts, is_positive, power
from moment_calculus.operations.elementwise.sums import (
    DEPENDENCE_REMEDY,
    added,
    refuse_dependence,
    sum_of,
)
from moment_calculus.operations.elementwise.unary import (
    apply,
    is_value,
    leaf,
    scale_shift,
    shape_of,
)
from moment_calculus.operations.shapes.reshaping import broadcast
from moment_calculus.refusals.errors import OR_DRAW, UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian, Value
from moment_calculus.values.layout import broadcast_shape
from moment_calculus.values.support import overlap

__all__ = [
    "DEPENDENCE_REMEDY",
    "add",
    "apply",
    "divide",
    "is_value",
    "leaf",
    "multiply",
    "scale_shift",
    "shape_of",
    "square",
    "subtract",
]


def add(left: Any, right: Any) -> Value:
    """Sum of two operands, at least one random; dependence enters by the exact cross-covariance.

    Args:
        left: value, array or number.
        right: likewise.

    Raises:
        UnsupportedMoments: if the operands share a latent site and their joint moments are not
            known, with full covariances; as those of rows of one batch that share weights.

    Warns:
        DependenceWarning: once per line, in diagonal mode in their place: the covariance is taken
            as zero.
    """
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, 1.0, right)
    if left is right:
        return scale_shift(left, 2.0)
    if of_one_gaussian(left, right):
        return fused(operator.add, left, right, bounds=lambda: left.bounds.plus(right.bounds))
    later = lambda: added(left, right)  # noqa: E731
    return fused(operator.add, left, right, otherwise=later) if is_chain(left, right) else later()


def subtract(left: Any, right: Any, *, elementwise: bool = False) -> Value:
    """Difference of two operands, at least one random.

    Args:
        left: value, array or number.
        right: likewise.
        elementwise: whether only means and variances are needed: the covariance between
            components is then not computed, and takes no part in what follows.

    Raises:
        UnsupportedMoments: if both are random and their joint moments are not known.
    """
    if not is_value(right):
        return scale_shift(left, 1.0, -right)
    if not is_value(left):
        return scale_shift(scale_shift(right, -1.0), 1.0, left)
    if of_one_gaussian(left, right):
        return fused(operator.sub, left, right)
    later = lambda: _subtracted(left, right, elementwise)  # noqa: E731
    return fused(operator.sub, left, right, otherwise=later) if is_chain(left, right) else later()


def _subtracted(left: Value, right: Value, elementwise: bool) -> Any:
    total = sum_of(left.gaussian(), scale_shift(right, -1.0).gaussian(), elementwise=elementwise)
    return refuse_dependence("difference", left, right) if total is None else total


def multiply(left: Any, right: Any) -> Value:
    """Product of two operands, at least one random.

    For two random operands E[xy] = μ_x μ_y + C_xy, with the exact variance and covariance of
    the product of jointly Gaussian variables. Two functions of one Gaussian are integrated as
    one, and a product of exponentials is the exponential of a sum. The product of an activation
    with a dependent value has the exact mean and variance too; its covariances are approximate,
    see :func:`moment_calculus.operations.elementwise.products.matched_product`.

    The product of Gaussians is not Gaussian, and a function of it is approximate: behind noise of
    mean 1 and variance 0.25 or 1 on x, of variance 0.1, the mean of relu is off by at most 0.32 and
    0.23 of its standard deviation and that of tanh by 0.03 and 0.02; the standard deviations are
    0.90 to 1.94 and 1.02 to 1.16 times the exact ones, for |E x| ≤ 2. Masks of zeros and ones are
    exact instead, see :func:`moment_calculus.operations.dropout.switches.select`.

    A product that is multiplied again by what it depends on, as in x ← a x, is not Gaussian, which
    is neglected: for k steps with E[a] = 0.8 and a standard deviation of 0.1 the variance is 0.99,
    0.90 and 0.51 times the exact one at k = 2, 4 and 8, the mean 1.00, 1.00 and 0.98 times; with
    0.3, 0.93, 0.49 and 0.03 times, the mean 1.00, 0.98 and 0.62 times.

    Raises:
        UnsupportedMoments: if both are random and their joint moments are not known.

    Warns:
        DependenceWarning: once per line, if a value is multiplied again by what it is a product of.

    Source: Shekhovtsov et al. 2018, eq. 8, for independent operands; Isserlis' theorem.
    """
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, right)
    if left is right and isinstance(left, Gaussian):
        return square(left)
    if of_one_gaussian(left, right, product=True):
        gaussian = isinstance(left, Gaussian) and isinstance(right, Gaussian)
        known = (lambda _: product_of(left, right)) if gaussian else None
        return fused(operator.mul, left, right, closed_form=known)
    exponential = _product_of_exponentials(left, right)
    return _product(left, right) if exponential is None else exponential


def _product(left: Value, right: Value) -> Gaussian:
    """The product of two values; functions that meet what they depend on stay functions."""
    if overlap(left, right):
        shape = broadcast_shape(left.shape, right.shape)
        left, right = (_repeated(factor, shape) for factor in (left, right))
    return product_by_branches(left, right)


def _repeated(value: Value, shape: tuple[int, ...]) -> Value:
    """A function of one Gaussian as that of the Gaussian repeated; any other value as it is."""
    if not isinstance(value, Deferred) or value.shape == shape:
        return value
    return (wide := broadcast(value, shape)).of(wide.function)


def _product_of_exponentials(left: Value, right: Value) -> Value | None:
    """b eʳˣ · c eˢʸ = bc e^{rx + sy}, which stays positive; None for other factors.

    So are products of scales, and quotients of a shape and a mean, ready for what comes next: a
    Gaussian of the product's moments would be neither positive nor a function of one Gaussian.
    """
    first, second = exponential_parts(left), exponential_parts(right)
    if first is None or second is None:
        return None
    (x, rate, factor), (y, other_rate, other_factor) = first, second
    exponent = sum_of(scale_shift(x, rate).gaussian(), scale_shift(y, other_rate).gaussian())
    if exponent is None:
        return None
    return scale_shift(apply(activation("exp"), exponent), factor * other_factor)


def square(value: Value) -> Value:
    """x², which also knows its covariance with other products.

    Args:
        value: x.
    """
    if isinstance(value, Deferred):
        return power(value, 2.0)
    return Deferred(value, activation("power", 2), closed_form=lambda base: product_of(base, base))


def divide(left: Any, right: Any) -> Value:
    """Quotient by a certain divisor, or by a positive function of a Gaussian.

    Raises:
        UnsupportedMoments: if the divisor may be zero: the moments of 1/x do not exist for a
            Gaussian x.
    """
    if is_positive(right):
        return multiply(left, power(right, -1.0))
    if is_value(right):
        raise UnsupportedMoments(
            "division by a random value has no moments (those of 1/x do not exist)",
            sites=right.sites | (left.sites if is_value(left) else frozenset()),
            remedy="parametrise the inverse, e.g. multiply by exp(-s) instead of dividing"
            + OR_DRAW,
        )
    return scale_shift(left, 1.0 / right)
