"""Products of two Gaussian values, with their dependence on each other."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

from moment_calculus.errors import DependenceWarning, warn_user
from moment_calculus.numerics.arrays import Array, diagonal_matrix, outer, transpose
from moment_calculus.numerics.special import namespace
from moment_calculus.operations.elementwise.fusion import one_function
from moment_calculus.operations.elementwise.product_variance import (
    repeats_a_factor,
    with_exact_variance,
)
from moment_calculus.operations.elementwise.sums import (
    DEPENDENCE_REMEDY,
    aligned,
    are_of_one_value,
    is_dense,
    raise_dependence_error,
    ties_of,
)
from moment_calculus.operations.elementwise.unary import is_value, scale_shift
from moment_calculus.values import (
    Gaussian,
    Spread,
    Step,
    Value,
    cross_covariance,
    elementwise_covariance,
    features_last,
)
from moment_calculus.values.ancestry import branches_of, combine_branches
from moment_calculus.values.lags import along_features, lag_covariance, shifted
from moment_calculus.values.layout import rows_scaled
from moment_calculus.values.support import overlap
from moment_calculus.values.vectors import from_vector_parts


@dataclass(frozen=True, eq=False)
class Product(Step):
    """Step of the product x · y of two Gaussian values."""

    inputs: tuple[Gaussian, Gaussian]
    componentwise: bool
    nonlinear = True
    elementwise = True

    @property
    def factors(self) -> tuple[Gaussian, Gaussian]:  # type: ignore[override]
        """The two factors."""
        return self.inputs

    @property
    def quadratic(self) -> tuple[Gaussian, Gaussian, None]:  # type: ignore[override]
        """The part of second order: the product of the deviations of both factors."""
        return *self.inputs, None

    def covariance(self) -> Array:
        """Return the covariance [..., d, d] for jointly Gaussian factors (Isserlis)."""
        first, second = self.inputs
        mean_x = features_last(first.mean, first.axis)
        mean_y = features_last(second.mean, second.axis)
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

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Scale the covariance of one factor by the mean of the other factor."""
        other = self.inputs[1 - place]
        return rows_scaled(cross, other.mean, other.axis)

    def own_covariance(self, value: Gaussian, other: Gaussian, query: Any) -> Array | float | None:
        """Return the covariance of the second-order term with another value."""
        return query.second_order(value, other)

    def branches(self, value: Gaussian, parts: Any) -> Any:
        """Multiply the branches of both factors."""
        return combine_branches(self.inputs, parts, multiply_any)

    def lag(self, value: Gaussian, offset: tuple[int, ...]) -> Array | None:
        """Return the covariance of components an offset apart, for independent factors."""
        if along_features(value, offset):
            return NotImplemented
        if overlap(*self.inputs):
            return None
        first, second = (lag_covariance(factor, offset) for factor in self.inputs)
        if first is None or second is None:
            return None
        means = [math.prod(shifted(factor.mean, offset)) for factor in self.inputs]
        return first * second + first * means[1] + second * means[0]

    def pull_move_through(self, move: Any, like: Gaussian) -> Gaussian:
        """Return the product of the moved factors."""
        return multiply_gaussians(*(move.apply_to(part, like) for part in self.inputs))

    def as_vector(self, value: Gaussian) -> Gaussian | None:
        """Return the product of both factors as vectors."""
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


def multiply_gaussians(left: Gaussian, right: Gaussian) -> Gaussian:
    """Multiply two Gaussians by the rule book's replacement, or by :func:`multiply_exactly`."""
    if (rule := left.propagation.rule_for("product")) is not None:
        first, second, _ = aligned(left, right)
        return rule(first, second).gaussian()
    return multiply_exactly(left, right)


def multiply_exactly(left: Gaussian, right: Gaussian) -> Gaussian:
    """Multiply two Gaussians exactly, whatever the rule book says; raise if unknown."""
    first, second, axis = aligned(left, right)
    cross = elementwise_covariance(first, second)
    if cross is None:
        return raise_dependence_error("product", left, right)
    if repeats_a_factor(first, second):
        # In x ← a x with E[a] = 0.8 and a standard deviation of 0.1 the variance after 2,
        # 4 and 8 steps is 0.99, 0.90 and 0.51 times the exact one, the mean 1.00, 1.00
        # and 0.98 times; with 0.3 the variance is 0.93, 0.49 and 0.03 times, the mean
        # 1.00, 0.98 and 0.62 times.
        warn_user(
            "a value is multiplied again by what it is a product of: its moments are those of "
            f"jointly Gaussian factors, an approximation; {DEPENDENCE_REMEDY}",
            DependenceWarning,
        )
    step = Product((first, second), are_of_one_value(first, second))
    shared = bool(overlap(first, second))
    product = Gaussian(
        first.mean * second.mean + cross,
        Spread(
            _product_variance(first, second, cross),
            step.covariance if is_dense(first, second, shared) else None,
            step.covariance,
        ),
        step,
        axis=axis,
        ties=ties_of(first, second),
        propagation=first.propagation,
    )
    return with_exact_variance(product, first, second)


def _product_variance(first: Gaussian, second: Gaussian, cross: Array | float) -> Array:
    """Return the variance of a product as a sum of terms that are not negative."""
    xp = namespace(first.mean)
    spread = first.variance * second.mean**2 + second.variance * first.mean**2
    mixed = spread + 2 * cross * first.mean * second.mean
    # |C_xy| ≤ σ_x σ_y: the mixed terms are not negative, except by rounding.
    return first.variance * second.variance + cross**2 + xp.clip(mixed, min=0.0)
