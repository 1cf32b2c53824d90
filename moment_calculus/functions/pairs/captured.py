"""Covariances of the pairs of a layer in captured programs, computed as in eager ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moment_calculus.functions.base import Activation
from moment_calculus.functions.pairs.certified import certified_covariance, is_worth_a_look
from moment_calculus.numerics.arrays import Array, diagonal
from moment_calculus.numerics.derivatives.opaque import as_one_operation, is_captured


def captured_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    general: Callable[..., Array],
    spread: Array,
) -> Array | None:
    """Return :func:`certified_covariance` as one operation of a captured program; else None."""
    if not is_worth_a_look(activation, mean, covariance) or not is_captured(mean, covariance):
        return None
    # A compiler would need minutes for the quadrature of two layers, and its code would be slower
    # than a few terms of the series.
    return as_one_operation(_Pairs(activation, order, general), 1, mean, covariance, spread)


@dataclass(frozen=True)
class _Pairs:
    """Covariances of f(x) from E x, Cov(x) and Var f(x): a function that is compared by value."""

    activation: Activation
    order: int  # number of terms at most
    general: Callable[..., Array]  # computes the covariances where the series does not serve

    def __call__(self, mean: Array, covariance: Array, spread: Array) -> Array:
        found = certified_covariance(
            self.activation, mean, covariance, self.order, self.general, spread
        )
        if found is None:
            found = self.general(mean, diagonal(covariance), covariance, spread)
        return found
