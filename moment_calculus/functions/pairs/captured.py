"""Covariances of the pairs of a layer in captured programs: computed as in eager ones."""

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
    """As :func:`moment_calculus.functions.pairs.certified.certified_covariance`, as one operation.

    A compiler would need minutes for the quadrature of two layers, whose code is slower than a few
    terms of the series.

    Args:
        activation: as there.
        mean: as there.
        covariance: as there.
        order: as there.
        general: as there, compared by its value.
        spread: as there.
    """
    if not is_worth_a_look(activation, mean, covariance) or not is_captured(mean, covariance):
        return None
    return as_one_operation(_Pairs(activation, order, general), 1, mean, covariance, spread)


@dataclass(frozen=True)
class _Pairs:
    """Covariances of f(x) from E x, Cov(x) and Var f(x).

    Args:
        activation: f.
        order: number of terms at most.
        general: what serves where the series does not.
    """

    activation: Activation
    order: int
    general: Callable[..., Array]

    def __call__(self, mean: Array, covariance: Array, spread: Array) -> Array:
        found = certified_covariance(
            self.activation, mean, covariance, self.order, self.general, spread
        )
        if found is None:
            found = self.general(mean, diagonal(covariance), covariance, spread)
        return found
