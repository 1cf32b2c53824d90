"""Rows of a layer without correlations, as of certain inputs beside uncertain ones."""

from __future__ import annotations

from collections.abc import Callable

from moment_calculus.functions.base import Activation
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    namespace,
    off_diagonal_mask,
    outer,
    safe_scale,
    set_diagonal,
    stop_gradient,
)
from moment_calculus.numerics.derivatives import Pullback, with_pullback

MANY_ROWS = 0.75  # share of rows with correlations above which the others are not told apart


def correlated_rows(covariance: Array) -> Array | None:
    """Return which rows of a batch have correlations; None if nearly all have them, or none has.

    Certain inputs, such as known entries of rows with gaps, leave a layer's units uncorrelated.
    """
    xp = namespace(covariance)
    fixed = stop_gradient(covariance)
    entries = xp.count_nonzero(fixed, axis=(-2, -1)) - xp.count_nonzero(diagonal(fixed), axis=-1)
    rows = entries > 0
    count = int(xp.count_nonzero(rows))
    return rows if 0 < count <= MANY_ROWS * len(rows) else None


def covariance_without_correlations(
    activation: Activation, moments: tuple[Array, Array, Array], covariance: Array
) -> Array:
    """Return covariances of rows without correlations, with their derivatives."""
    mean, variance, spread = moments
    return with_pullback(_diagonal(activation), _two_terms(activation))(
        mean, variance, covariance, spread
    )


def _diagonal(activation: Activation) -> Callable[..., tuple[Array, Pullback]]:
    """Return a function to variances on a diagonal, and its gradient by all covariances."""

    def function(
        mean: Array, variance: Array, covariance: Array, spread: Array
    ) -> tuple[Array, Pullback]:
        values = namespace(covariance).zeros_like(covariance)
        set_diagonal(values, spread)

        def pullback(gradient: Array) -> tuple[Array, ...]:
            # ∂ Cov(f(x), f(y)) / ∂ Cov(x, y) = E f′(x) E f′(y) where x and y are independent
            gain, unmoved = activation.gain(mean, variance), 0 * mean
            by_covariance = gradient * outer(gain, gain)
            set_diagonal(by_covariance, 0)
            return unmoved, unmoved, by_covariance, diagonal(gradient)

        return values, pullback

    return function


def _two_terms(activation: Activation) -> Callable[..., Array]:
    """Return two terms of the series, which give derivatives of the gradient."""

    def function(mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
        rho = covariance * outer(1 / safe_scale(variance), 1 / safe_scale(variance))
        first, second = activation.hermite(mean, variance, 2)
        values = rho * (outer(first, first) + rho * outer(second, second))
        return namespace(mean).where(off_diagonal_mask(mean), values, spread[..., None])

    return function
