"""Covariance of an activation of correlated Gaussians: closed, or by Mehler's series."""

from __future__ import annotations

from dataclasses import dataclass

from moment_calculus.functions.base import Activation
from moment_calculus.functions.pairs.captured import captured_covariance
from moment_calculus.functions.pairs.certified import certified_covariance
from moment_calculus.functions.pairs.mehler import mehler
from moment_calculus.functions.pairs.symmetric import compiled_covariance
from moment_calculus.numerics.arrays import Array, diagonal, off_diagonal_mask
from moment_calculus.numerics.special import namespace

ORDER = 32


def covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    *,
    order: int = ORDER,
    spread: Array | None = None,
) -> Array:
    """Covariance of f(x) for x ~ N(mean, covariance).

    Args:
        activation: f, applied to every component.
        mean: [..., d].
        covariance: symmetric, [..., d, d].
        order: number of terms of the series, for an activation whose pairs have no closed form;
            :func:`~moment_calculus.functions.pairs.mehler.mehler_certificate` bounds the rest.
        spread: Var f(x) where it is known, [..., d].

    Returns:
        Symmetric matrices [..., d, d] with the exact variance on the diagonal.

        The largest error of 32 terms, in standard deviations of f(x), for |μ| ≤ 2σ (measured; first
        sigmoid, then tanh, then the worst of softplus, SiLU, Mish, ELU, tanh-GELU, softsign and
        hardswish):

        ======  =================  =================  =================
        σ       |ρ| ≤ 0.6          |ρ| ≤ 0.9          |ρ| ≤ 1
        ======  =================  =================  =================
        1       2e-9, 1e-9, 6e-12  4e-9, 7e-9, 1e-5   4e-9, 2e-7, 1e-3
        3       6e-10, 1e-9, 5e-11 6e-7, 5e-5, 8e-5   3e-5, 3e-3, 7e-3
        10      1e-9, 7e-10, 1e-10 2e-4, 4e-4, 2e-4   2e-2, 5e-2, 2e-2
        100     5e-10, 3e-10, 1e-9 5e-4, 5e-4, 4e-4   1e-1, 1e-1, 9e-2
        ======  =================  =================  =================

        Functions that turn more often within a standard deviation need more terms, about σ² times
        the square of their frequency.

        Large layers take as few terms as a certificate asks for, with or without a closed form: see
        :func:`~moment_calculus.functions.pairs.certified.certified_covariance`.

    Source: Price's theorem for closed forms; else Mehler's formula.
    """
    general, variance = _General(activation, order), diagonal(covariance)
    if spread is None:
        spread = activation.moments(mean, variance)[1]
    for look in (certified_covariance, captured_covariance, compiled_covariance):
        found = look(activation, mean, covariance, order, general, spread)
        if found is not None:
            return found
    return general(mean, variance, covariance, spread)


@dataclass(frozen=True)
class _General:
    """Covariances of all pairs from E x, Var x, Cov(x) and Var f(x): closed, or the whole series.

    Args:
        activation: f.
        order: number of terms.
    """

    activation: Activation
    order: int

    def __call__(self, mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
        result = self.activation.pair_covariance(mean, variance, covariance)
        if result is NotImplemented:
            result = mehler(self.activation, mean, covariance, order=self.order)
        return namespace(mean).where(off_diagonal_mask(mean), result, spread[..., None])
