"""Covariance of an activation of correlated Gaussians: in closed form, or by Mehler's series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moment_calculus.functions.base import Activation
from moment_calculus.functions.pairs.compiled import compiled_covariance
from moment_calculus.functions.pairs.eager import is_large_enough, truncated_covariance
from moment_calculus.functions.pairs.mehler import mehler
from moment_calculus.numerics.arrays import Array, diagonal, off_diagonal_mask
from moment_calculus.numerics.derivatives.opaque import call_as_operation, is_captured
from moment_calculus.numerics.special import namespace

# Terms of the series. Their largest error, in standard deviations of f(x), for |μ| ≤ 2σ
# (measured; first sigmoid, then tanh, then the worst of softplus, SiLU, Mish, ELU,
# tanh-GELU, softsign and hardswish):
#
#     σ       |ρ| ≤ 0.6          |ρ| ≤ 0.9          |ρ| ≤ 1
#     1       2e-9, 1e-9, 6e-12  4e-9, 7e-9, 1e-5   4e-9, 2e-7, 1e-3
#     3       6e-10, 1e-9, 5e-11 6e-7, 5e-5, 8e-5   3e-5, 3e-3, 7e-3
#     10      1e-9, 7e-10, 1e-10 2e-4, 4e-4, 2e-4   2e-2, 5e-2, 2e-2
#     100     5e-10, 3e-10, 1e-9 5e-4, 5e-4, 4e-4   1e-1, 1e-1, 9e-2
#
# A function that oscillates within a standard deviation needs about σ² times the square
# of its frequency. moment_calculus.functions.pairs.mehler.mehler_certificate bounds the
# error.
ORDER = 32


def covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    *,
    order: int = ORDER,
    spread: Array | None = None,
) -> Array:
    """Return the covariance [..., d, d] of f(x) for x ~ N(mean, covariance).

    ``spread`` is Var f(x), [..., d], if it is known. Sources: Price's theorem for closed
    forms; Mehler's formula otherwise, with at most ``order`` terms.
    """
    fallback, variance = _General(activation, order), diagonal(covariance)
    if spread is None:
        spread = activation.moments(mean, variance)[1]
    # large layers first: there a certificate allows fewer terms
    for rule in (truncated_covariance, opaque_covariance, compiled_covariance):
        result = rule(activation, mean, covariance, order, fallback, spread)
        if result is not None:
            return result
    return fallback(mean, variance, covariance, spread)


@dataclass(frozen=True)
class _General:
    """Covariances of f(x) from E x, Var x, Cov(x) and Var f(x): closed form or the whole series."""

    activation: Activation
    order: int

    def __call__(self, mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
        result = self.activation.pair_covariance(mean, variance, covariance)
        if result is NotImplemented:
            result = mehler(self.activation, mean, covariance, order=self.order)
        return namespace(mean).where(off_diagonal_mask(mean), result, spread[..., None])


def opaque_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    fallback: Callable[..., Array],
    spread: Array,
) -> Array | None:
    """Return :func:`truncated_covariance` as one operation of a captured program; else None."""
    if not is_large_enough(activation, mean, covariance) or not is_captured(mean, covariance):
        return None
    # A compiler would need minutes for the quadrature of two layers, and its code would
    # be slower than a few terms of the series.
    return call_as_operation(
        _OpaqueCovariance(activation, order, fallback), 1, mean, covariance, spread
    )


@dataclass(frozen=True)
class _OpaqueCovariance:
    """Covariances of f(x) from E x, Cov(x) and Var f(x): a function that is compared by value."""

    activation: Activation
    order: int  # number of terms at most
    fallback: Callable[..., Array]  # computes the covariances where the series does not serve

    def __call__(self, mean: Array, covariance: Array, spread: Array) -> Array:
        result = truncated_covariance(
            self.activation, mean, covariance, self.order, self.fallback, spread
        )
        if result is None:
            result = self.fallback(mean, diagonal(covariance), covariance, spread)
        return result
