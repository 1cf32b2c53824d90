"""Exact variance of a product of two elementwise functions of jointly Gaussian values.

With d = f − E f and e = g − E g, the variance of f g = (E f + d)(E g + e) needs, beside
the moments of f and g, Cov(d, e²), Cov(d², e) and Cov(d², e²), each a covariance of two
functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moment_calculus.functions.base import Activation, Array, normal_hermite
from moment_calculus.functions.function_bounds import value_range
from moment_calculus.functions.pairs.mehler import Operand, elementwise_product, function_covariance
from moment_calculus.functions.table import activation
from moment_calculus.numerics.arrays import outer
from moment_calculus.numerics.quadrature import nodes
from moment_calculus.numerics.special import TINY_VARIANCE, namespace, safe_scale
from moment_calculus.values.ancestry import ancestors
from moment_calculus.values.applied import with_rule_book
from moment_calculus.values.covariances import elementwise_covariance
from moment_calculus.values.gaussian import Gaussian
from moment_calculus.values.layout import features_last, rows_scaled
from moment_calculus.values.spread import Spread
from moment_calculus.values.step import Step
from moment_calculus.values.support import overlap

ORDER = 16  # terms of the Mehler series


@dataclass(frozen=True, eq=False)
class _SquaredDeviation(Activation):
    """The function (f(x) − E f)², with moments by quadrature."""

    function: Activation  # f
    centre: Array  # E f
    name = "squared deviation"

    def __call__(self, x: Array) -> Array:
        """Evaluate the plain function."""
        return (self.function(x) - self.centre) ** 2

    @property
    def knots(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The knots of f."""
        return getattr(self.function, "knots", (0.0,))

    def _values(self, mean: Array, variance: Array) -> tuple[Array, Array, Array]:
        points, weights = nodes(mean, variance, self.knots)
        return (points - mean) / safe_scale(variance), self(points), weights

    def moments(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the mean and the variance by quadrature."""
        _, values, weights = self._values(mean, variance)
        xp = namespace(mean)
        centre = xp.sum(weights * values, axis=0)
        return centre, xp.sum(weights * (values - centre) ** 2, axis=0)

    def hermite(self, mean: Array, variance: Array, order: int) -> list[Array]:
        """Return the Hermite coefficients by quadrature."""
        steps, values, weights = self._values(mean, variance)
        total = lambda polynomial: namespace(mean).sum(polynomial * values, axis=0)  # noqa: E731
        return list(normal_hermite(steps, weights, order + 1, reduce=total)[1:])

    def gain(self, mean: Array, variance: Array) -> Array:
        """Return the expected derivative by quadrature."""
        return self.hermite(mean, variance, 1)[0] / safe_scale(variance)


@dataclass(frozen=True, eq=False)
class RescaledProduct(Step):
    """Step of a product whose deviations are those of another product, times a ratio."""

    product: Gaussian  # of jointly Gaussian factors
    ratio: Array  # of the standard deviations

    @property
    def inputs(self) -> tuple[Gaussian, ...]:  # type: ignore[override]
        """The other product, as the only input."""
        return (self.product,)

    @property
    def componentwise(self) -> bool:  # type: ignore[override]
        """Whether the other product is in place."""
        return self.product.step.componentwise

    def follows(self, place: int) -> bool:
        """Return True: :meth:`through` is known for every input."""
        return True

    def through(self, place: int, cross: Array) -> Array:
        """Scale the covariance of the other product by the ratio."""
        return rows_scaled(cross, self.ratio, self.product.axis)

    def spread(self, covariance: Array) -> Array:
        """Scale a covariance [..., d, d] of the other product by the ratio."""
        last = features_last(self.ratio, self.product.axis)
        return outer(last, last) * covariance


def with_exact_variance(product: Gaussian, first: Gaussian, second: Gaussian) -> Gaussian:
    """Give a product of functions of Gaussians its exact variance; keep its correlations.

    The correlations are those of jointly Gaussian factors. For relu(Ah) ⊙ sigmoid(Bh),
    tanh(Ah) ⊙ sigmoid(Bh) and Ah ⊙ sigmoid(Bh), variances of 1, the covariances with
    relu(Ah), Bh and Ah are off by at most 0.07, 0.18 and 0.06 of the product of the
    standard deviations.
    """
    if not (first.step.function or second.step.function) or not overlap(first, second):
        return product
    variance = _variance(first, second)
    if variance is None:
        return product
    xp = namespace(variance)
    ratio = safe_scale(variance) / safe_scale(product.variance)
    ratio = xp.where(product.variance > TINY_VARIANCE, ratio, xp.ones_like(ratio))
    step = RescaledProduct(product, ratio)
    covariance = (lambda: step.spread(product.covariance)) if product.has_covariance else None
    return Gaussian(
        product.mean,
        Spread(variance, covariance, lambda: step.spread(product.joint_covariance())),
        step,
        axis=product.axis,
        ties=product.ties,
        propagation=product.propagation,
    )


def repeats_a_factor(first: Gaussian, second: Gaussian) -> bool:
    """Whether one factor was made by products with a value like the other factor."""
    if not overlap(first, second):
        return False
    return _comes_from(first, second) or _comes_from(second, first)


def _comes_from(value: Gaussian, factor: Gaussian) -> bool:
    return any(
        _alike(part, factor)
        for ancestor in ancestors(value)
        for part in ancestor.step.factors or ()
    )


def _alike(first: Gaussian, second: Gaussian) -> bool:
    """Whether two values depend on the same sites and are known to be correlated."""
    if first.sites != second.sites or first.shape != second.shape:
        return False
    covariance = elementwise_covariance(first, second)
    return covariance is not None and value_range(covariance) not in (None, (0.0, 0.0))


def _function(value: Gaussian) -> tuple[Gaussian, Activation]:
    """Return the Gaussian and the function of it that a factor is, by the rule book."""
    if value.step.function is None:
        return value, activation("identity")
    base, function = value.step.function
    return base, with_rule_book(base, function)


def _variance(first: Gaussian, second: Gaussian) -> Array | None:
    """Return the exact variance of a product of functions of jointly Gaussian x and y."""
    (x, f), (y, g) = _function(first), _function(second)
    between = elementwise_covariance(x, y)
    if between is None:
        return None
    one, two = Operand(f, x.mean, x.variance), Operand(g, y.mean, y.variance)
    bends = [
        Operand(_SquaredDeviation(part.activation, value.mean), part.mean, part.variance)
        for part, value in ((one, first), (two, second))
    ]
    plain, second_bent, first_bent, both = (
        function_covariance(left, right, between, ORDER, elementwise_product)
        for left, right in ((one, two), (one, bends[1]), (bends[0], two), (bends[0], bends[1]))
    )
    mean_x, mean_y = first.mean, second.mean
    linear = mean_x**2 * second.variance + mean_y**2 * first.variance
    crossed = mean_x * mean_y * plain + mean_x * second_bent + mean_y * first_bent
    total = linear + 2 * crossed + first.variance * second.variance + both - plain**2
    return namespace(total).clip(total, min=0.0)
