"""Products, squares and quotients of values, with their dependence on each other.

The variance of a product of two functions of jointly Gaussian values is exact: with d = f −
E f and e = g − E g, that of f g = (E f + d)(E g + e) needs, beside the moments of f and g,
Cov(d, e²), Cov(d², e) and Cov(d², e²), each a covariance of two functions.
"""

from __future__ import annotations

import contextlib
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from moment_calculus.errors import OR_DRAW, DependenceWarning, UnsupportedMoments, warn_user
from moment_calculus.functions.base import Activation
from moment_calculus.functions.pairs.deviations import RememberedOperand, squared_deviation
from moment_calculus.functions.pairs.mehler import elementwise_product, function_covariance
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import (
    TINY_VARIANCE,
    Array,
    diagonal_matrix,
    namespace,
    outer,
    safe_scale,
    transpose,
)
from moment_calculus.operations.elementwise.elementary import inverse_of_exponential, power
from moment_calculus.operations.elementwise.exponentials import (
    Bends,
    LognormalProduct,
    bends_beside_exponential,
    exponential_apart,
    product_of_exponentials,
    product_of_scaled_functions,
)
from moment_calculus.operations.elementwise.factors import (
    FunctionOfSeveral,
    Joint,
    assume_positive,
    factors_of,
    is_linear,
    is_positive,
    joint_of,
    positive_joint,
    ratio_bounds,
    refuse_many_products,
    repeats_a_factor,
)
from moment_calculus.operations.elementwise.joint import of_joint
from moment_calculus.operations.elementwise.sums import (
    DEPENDENCE_REMEDY,
    aligned,
    are_of_one_value,
    is_dense,
    raise_dependence_error,
    ties_of,
)
from moment_calculus.operations.elementwise.unary import (
    are_of_one_gaussian,
    fuse_functions,
    is_value,
    one_function,
    scale_shift,
)
from moment_calculus.operations.shapes.coordinates import times_dependent
from moment_calculus.operations.shapes.reshaping import broadcast, narrow
from moment_calculus.values import (
    Deferred,
    Gaussian,
    Spread,
    Value,
    cross_covariance,
    elementwise_covariance,
    features_last,
)
from moment_calculus.values.ancestry import (
    branches_of,
    combine_branches,
    from_vector_parts,
)
from moment_calculus.values.elementwise import function_first, with_rule_book
from moment_calculus.values.lags import Along, Pairs
from moment_calculus.values.propagation import register_replaceable
from moment_calculus.values.protocols import KnowsLags, Rewritable, Switched
from moment_calculus.values.spread import broadcast_shape, overlap, rows_scaled
from moment_calculus.values.step import Added, OfOneSource, Product

__all__ = ["divide", "multiply", "square"]

ORDER = 16  # terms of the Mehler series


@dataclass(frozen=True, eq=False)
class _RescaledProduct(OfOneSource, FunctionOfSeveral, Rewritable):
    """Step of a product whose deviations are those of its source, times a ratio.

    The source is the product of jointly Gaussian factors.
    """

    ratio: Array  # of the standard deviations

    @property
    def componentwise(self) -> bool:  # type: ignore[override]
        return self.source.step.componentwise

    @property
    def joint(self) -> Joint | None:  # type: ignore[override]
        """Return the product as a function of its factors, if these are functions."""
        joint = joint_of(self.source)
        return joint if isinstance(joint, Joint) else None

    def through(self, input_index: int, cross: Array) -> Array:
        return rows_scaled(cross, self.ratio, self.source.axis)

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        return cotangent * self.ratio

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        return axis

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        return inputs[0]  # which has its exact variance

    def covariance(self) -> Array:
        last = features_last(self.ratio, self.source.axis)
        return outer(last, last) * self.source.joint_covariance()

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the product of the factors as vectors, with the variance that is known."""
        known = self.source.mean, self.source.variance
        multiply = lambda *factors: _product_with(known, *aligned(*factors))  # noqa: E731
        source = from_vector_parts(multiply, *self.source.step.inputs)
        return None if source is None else _rescaled(source, self.ratio, value.variance)


def _rescaled(product: Gaussian, ratio: Array, variance: Array) -> Gaussian:
    """Return a product with other standard deviations, by their ratio."""
    step = _RescaledProduct(product, ratio)
    return Gaussian(
        product.mean,
        Spread(variance, step.covariance, product.has_covariance),
        step,
        axis=product.axis,
        ties=product.ties,
        propagation=product.propagation,
    )


def with_exact_variance(
    product: Gaussian, first: Gaussian, second: Gaussian, bends: Bends | None
) -> Gaussian:
    """Give a product of functions of Gaussians its exact variance; keep its correlations.

    The correlations are those of jointly Gaussian factors. For relu(Ah) ⊙ sigmoid(Bh),
    tanh(Ah) ⊙ sigmoid(Bh) and Ah ⊙ sigmoid(Bh), variances of 1, the covariances with
    relu(Ah), Bh and Ah are off by at most 0.07, 0.18 and 0.06 of the product of the
    standard deviations.
    """
    if not (first.step.function or second.step.function) or not overlap(first, second):
        return product
    bends = bends or _bends(first, second)
    if bends is None:
        return product
    variance, of_gaussians = bends.variances(first, second)
    xp = namespace(variance)
    ratio = safe_scale(variance) / safe_scale(of_gaussians)
    ratio = xp.where(of_gaussians > TINY_VARIANCE, ratio, xp.ones_like(ratio))
    return _rescaled(product, ratio, variance)


def _function(value: Gaussian) -> tuple[Gaussian, Activation]:
    """Return the Gaussian and the function of it that a factor is, by the rule book."""
    if value.step.function is None:
        return value, activation("identity")
    base, function = value.step.function
    return base, with_rule_book(base, function)


def _bends(first: Gaussian, second: Gaussian) -> Bends | None:
    """Return the covariances of deviations of functions of jointly Gaussian x and y."""
    (x, f), (y, g) = _function(first), _function(second)
    between = elementwise_covariance(x, y)
    if between is None:
        return None
    one, two = RememberedOperand(f, x.mean, x.variance), RememberedOperand(g, y.mean, y.variance)
    bends = [squared_deviation(part, value.mean) for part, value in ((one, first), (two, second))]
    pairs = (one, two), (one, bends[1]), (bends[0], two), (bends[0], bends[1])
    return Bends(
        *(function_covariance(*pair, between, ORDER, elementwise_product) for pair in pairs)
    )


@dataclass(frozen=True, eq=False)
class _Product(Product, KnowsLags, Rewritable, Switched):
    """Step of the product x · y of two Gaussian values."""

    inputs: tuple[Gaussian, Gaussian]
    componentwise: bool
    drops_covariance: bool = False
    exact: LognormalProduct | None = None  # of factors of which one is an exponential

    def factors(self, value: Gaussian) -> tuple[int, ...]:
        """Return the index of the smaller factor, which may be a scale of the other."""
        return (min((0, 1), key=lambda input_index: math.prod(self.inputs[input_index].shape)),)

    def covariance(self) -> Array:
        """Return the covariance [..., d, d] for jointly Gaussian factors (Isserlis)."""
        if self.exact is not None:
            return self.exact.covariance()
        first, second = self.inputs
        mean_x, mean_y = (features_last(part.mean, part.axis) for part in self.inputs)
        if second.independent and not overlap(first, second):
            noise = features_last(second.variance, second.axis)
            square = features_last(first.variance, first.axis) + mean_x * mean_x
            joint = first.joint_covariance() * outer(mean_y, mean_y)
            return joint + diagonal_matrix(noise * square)
        cov_x, cov_y = first.joint_covariance(), second.joint_covariance()
        covariance = cov_x * cov_y + cov_x * outer(mean_y, mean_y) + cov_y * outer(mean_x, mean_x)
        if overlap(first, second):
            cross = cross_covariance(first, second)
            if cross is None:  # although the elementwise covariance is known
                raise_dependence_error("covariance of a product", first, second)
            linear = outer(mean_y, mean_x) * cross
            covariance = covariance + cross * transpose(cross) + linear + transpose(linear)
        return covariance

    def through(self, input_index: int, cross: Array) -> Array:
        """Scale the covariance of one factor by the mean of the other factor."""
        return rows_scaled(cross, self._gain(input_index), self.inputs[1 - input_index].axis)

    def _gain(self, input_index: int) -> Array:
        """Return by what deviations of a factor are multiplied."""
        if self.exact is not None:
            return self.exact.gains[input_index]
        return self.inputs[1 - input_index].mean

    def pull(self, value: Gaussian, input_index: int, cotangent: Array) -> Array:
        """Scale the cotangent by the mean of the other factor."""
        return cotangent * self._gain(input_index)

    def same_rows(self, value: Gaussian, input_index: int, axis: int) -> int:
        return axis

    def own(self, value: Gaussian) -> Added:
        """Return v_x v_y + C_xy², the variance of (x − E x)(y − E y)."""
        first, second = self.inputs
        between = value.mean - first.mean * second.mean
        return Added(first.variance * second.variance + between * between)

    def covariance_with(self, value: Gaussian, other: Gaussian, query: Any) -> Array | None:
        if self.exact is None or is_linear(other) or query.precedes(other, value):
            return NotImplemented
        if (exact := getattr(other.step, "exact", None)) is not None:
            return self.exact.covariance_with(exact, query)
        swapped = query.by_inputs(other, value)
        return NotImplemented if swapped is None else transpose(swapped)

    def again(self, value: Gaussian, inputs: tuple[Gaussian, ...]) -> Gaussian:
        return multiply_gaussians(*inputs)

    def branches(self, value: Gaussian, input_branches: Any) -> Any:
        return combine_branches(self.inputs, input_branches, multiply_any)

    def pairs(self, value: Gaussian, pairs: Pairs | Along) -> Array | None:
        """Return the covariances of pairs of components, for independent factors."""
        if overlap(*self.inputs):
            return None
        first, second = (pairs.covariances(factor) for factor in self.inputs)
        if first is None or second is None:
            return None
        means = [math.prod(pairs.ends(factor.mean)) for factor in self.inputs]
        return first * second + first * means[1] + second * means[0]

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian | None:
        first, second = self.inputs
        dependent = first is not second and overlap(first, second)
        if dependent and first.propagation.is_backward:
            return None  # the covariance of moved factors may not be known
        moved = move.apply_to(first, like)
        return _multiply(moved, moved if second is first else move.apply_to(second, like))

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        return from_vector_parts(multiply_gaussians, *self.inputs)


def multiply_any(left: Any, right: Any) -> Any:
    """Multiply values or arrays; functions of one Gaussian are integrated as one function."""
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, right).gaussian() if is_value(left) else left * right
    return one_function(operator.mul, left, right) or multiply_branchwise(left, right)


def multiply_branchwise(left: Value, right: Value) -> Gaussian:
    """Multiply two values; dependent ones branch by branch where a mask switches one."""
    left, right = left.gaussian(), right.gaussian()
    if overlap(left, right):
        left, right, _ = aligned(left, right)
        parts = branches_of(left), branches_of(right)
        if (product_branches := combine_branches((left, right), parts, multiply_any)) is not None:
            return product_branches.join_branches(lambda branch: branch)
    return multiply_gaussians(left, right)


PRODUCT = register_replaceable("product")


def multiply_gaussians(left: Gaussian, right: Gaussian) -> Gaussian:
    """Multiply two Gaussians by the rule book's replacement, or by :func:`multiply_exactly`."""
    wide = _multiply_narrow(left, right) if left.propagation.is_backward else None
    return _multiply(left, right) if wide is None else wide


def _multiply(left: Gaussian, right: Gaussian) -> Gaussian:
    if (rule := left.propagation.replacement(PRODUCT)) is not None:
        first, second, _ = aligned(left, right)
        return rule(first, second).gaussian()
    return multiply_exactly(left, right)


def _multiply_narrow(left: Gaussian, right: Gaussian) -> Gaussian | None:
    """Return the product of factors that are both repeated as a repeated product; else None."""
    first, second, shape = narrow(left), narrow(right), broadcast_shape(left.shape, right.shape)
    if broadcast_shape(first.shape, second.shape) == shape:
        return None
    axis = aligned(left, right)[2]
    return broadcast(multiply_gaussians(first, second), shape, axis)


def multiply_exactly(left: Gaussian, right: Gaussian) -> Gaussian:
    """Multiply two Gaussians exactly, whatever the rule book says; raise if unknown."""
    first, second, axis = aligned(left, right)
    if (whole := product_of_scaled_functions(first, second)) is not None:
        return whole
    refuse_many_products(first, second)
    bends = bends_beside_exponential(first, second)
    cross = elementwise_covariance(first, second) if bends is None else bends.plain
    if cross is None:
        if not first.propagation.is_backward:
            return raise_dependence_error("product", left, right)
        return multiply_without_covariance(first, second)
    if repeats_a_factor(first, second):
        # In x ← a x, E a = 0.8, of a standard deviation of 0.1 (0.3), the variance after 2, 4 and
        # 8 steps is 0.99, 0.90, 0.51 (0.93, 0.49, 0.03) times the exact one, the mean 1, 1, 0.98
        # (1, 0.98, 0.62) times.
        warn_user(
            "a value is multiplied again by what it is a product of: its moments are those of "
            f"jointly Gaussian factors, an approximation; {DEPENDENCE_REMEDY}",
            DependenceWarning,
        )
    exact = LognormalProduct.of(first, second) if overlap(first, second) else None
    variance = _product_variance(first, second, cross) if exact is None else exact.variance
    moments = first.mean * second.mean + cross, variance
    product = _product_with(moments, first, second, axis, exact)
    return product if exact else with_exact_variance(product, first, second, bends)


def _product_with(
    moments: tuple[Array, Array],
    first: Gaussian,
    second: Gaussian,
    axis: int | None,
    exact: LognormalProduct | None = None,
) -> Gaussian:
    """Return the product of aligned factors, of which mean and variance are known."""
    mean, variance = moments
    step = _Product((first, second), are_of_one_value(first, second), exact=exact)
    is_propagated = is_dense(first, second, bool(overlap(first, second)))
    return Gaussian(
        mean,
        Spread(variance, step.covariance, is_propagated),
        step,
        axis=axis,
        ties=ties_of(first, second),
        propagation=first.propagation,
    )


def multiply_without_covariance(left: Gaussian, right: Gaussian) -> Gaussian:
    """Multiply two values as if they were independent, for ``covariance="backward"``; warn."""
    first, second, axis = aligned(left, right)
    warn_user(
        "a product of two values that depend on the same latent sites in an unknown way: their "
        "covariance is left out of its mean; docs/maths.md has the errors for recurrent cells",
        DependenceWarning,
    )
    return Gaussian(
        first.mean * second.mean,
        Spread(_product_variance(first, second, 0.0)),
        _Product((first, second), False, drops_covariance=True),
        axis=axis,
        propagation=first.propagation,
    )


def _product_variance(first: Gaussian, second: Gaussian, cross: Array | float) -> Array:
    """Return the variance of a product as a sum of terms that are not negative."""
    xp = namespace(first.mean)
    spread = first.variance * second.mean**2 + second.variance * first.mean**2
    mixed = spread + 2 * cross * first.mean * second.mean
    # |C_xy| ≤ σ_x σ_y: the mixed terms are not negative, except by rounding.
    return first.variance * second.variance + cross**2 + xp.clip(mixed, min=0.0)


def multiply(left: Any, right: Any) -> Value:
    """Multiply two operands, at least one random, with the exact moments of Gaussian factors.

    E[xy] = μ_x μ_y + C_xy. Two functions of one Gaussian are integrated as one function. Where
    C_xy is not known, ``covariance="backward"`` leaves it out with a warning; in recurrent cells
    of 12 steps and weights of sd 0.02, 0.1, 0.3 the means are off by 0.01, 0.04, 0.05 sd, and the
    sd are 1.00, 0.97–1.00 and 0.95–0.99 times those of draws. The other modes refuse.
    Source: Isserlis' theorem; Shekhovtsov et al. 2018, eq. 8, for independent operands.
    """
    if not is_value(left):
        left, right = right, left
    if not is_value(right):
        return scale_shift(left, right)
    if left is right and isinstance(left, Gaussian):
        return square(left)
    if are_of_one_gaussian(left, right, product=True):
        gaussian = isinstance(left, Gaussian) and isinstance(right, Gaussian)
        moments = (lambda _: multiply_gaussians(left, right)) if gaussian else None
        return fuse_functions(operator.mul, left, right, closed_form=moments)
    # Functions that follow take the product as Gaussian. Behind noise of mean 1 and
    # variance 0.25 or 1 on x, of variance 0.1 and |E x| ≤ 2, the mean of relu is off by
    # up to 0.32 and 0.23 of its standard deviation, that of tanh by 0.03 and 0.02; the
    # standard deviations are 0.90 to 1.94 and 1.02 to 1.16 times the exact ones. Masks
    # are exact instead: dropout/noise.py.
    exponential = product_of_exponentials(left, right)
    if exponential is not None:
        return exponential
    for first, second in ((left, right), (right, left)):
        if (apart := exponential_apart(first, second)) is not None:
            free, shared = apart
            return _product(free, fuse_functions(operator.mul, shared, second))
    return _product(left, right)


def _product(left: Value, right: Value) -> Gaussian:
    """Multiply two values; dependent functions of Gaussians stay functions when they broadcast."""
    if overlap(left, right):
        if (known := times_dependent(left, right)) is not None:
            return known
        shape = broadcast_shape(left.shape, right.shape)
        left, right = (_repeated(factor, shape) for factor in (left, right))
    return multiply_branchwise(left, right)


def _repeated(value: Value, shape: tuple[int, ...]) -> Value:
    """Return a function of one Gaussian as a function of the repeated Gaussian."""
    if not isinstance(value, Deferred) or value.shape == shape:
        return value
    return (wide := broadcast(value, shape)).of(wide.function)


def square(value: Value) -> Value:
    """Return x², which keeps its covariance with other products."""
    if isinstance(value, Deferred):
        return power(value, 2.0)
    return Deferred(value, activation("power", 2), closed_form=_square)


def _square(value: Gaussian) -> Gaussian:
    first = function_first(value, _square)
    return multiply_gaussians(value, value) if first is None else first


def divide(left: Any, right: Any) -> Value:
    """Divide by a certain divisor or a positive function of Gaussians; raise for others."""
    if is_positive(right := assume_positive(right)):
        return multiply(left, power(right, -1.0))
    if (inverse := inverse_of_exponential(right)) is not None:
        return multiply(left, inverse)
    if isinstance(right, Gaussian) and (factors := factors_of(right)) is not None:
        return reduce(divide, factors, left)
    if (joint := positive_joint(right)) is not None:
        if not is_value(left):
            return multiply(left, power(right, -1.0))
        part = joint_of(left)
        with contextlib.suppress(UnsupportedMoments):  # of more Gaussians than are integrated
            return of_joint(operator.truediv, part, joint, bounds=ratio_bounds(part, joint))
    if is_value(right):
        raise UnsupportedMoments(
            "division by a random value has no moments (those of 1/x do not exist)",
            sites=right.sites | (left.sites if is_value(left) else frozenset()),
            remedy="parametrise the inverse, e.g. multiply by exp(-s) instead of dividing"
            + OR_DRAW,
        )
    return scale_shift(left, 1.0 / right)
