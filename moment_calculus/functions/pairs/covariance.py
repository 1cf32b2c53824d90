"""Covariance of an activation of Gaussians: in closed form, or by Mehler's series."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import array_api_compat

from moment_calculus.functions.base import Activation, clipped_correlation
from moment_calculus.functions.pairs.mehler import (
    TOLERANCE,
    has_closed_pairs,
    is_large_enough,
    largest_share_left,
    mehler,
    truncated_covariance,
)
from moment_calculus.numerics.arrays import (
    Array,
    diagonal,
    namespace,
    off_diagonal_mask,
    outer,
    safe_scale,
    transpose,
)
from moment_calculus.numerics.derivatives import (
    directional_derivative,
    optimization_barrier,
    with_tangent,
)
from moment_calculus.numerics.execution import LARGE, checkpointed_rows, cond
from moment_calculus.numerics.opaque import call_as_operation, is_captured

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
    fallback, variance = ExactPairs(activation, order), diagonal(covariance)
    if spread is None:
        spread = activation.moments(mean, variance)[1]
    # large layers first: there a certificate allows fewer terms
    for rule in (truncated_covariance, opaque_covariance, compiled_covariance):
        result = rule(activation, mean, covariance, order, fallback, spread)
        if result is not None:
            return result
    return fallback(mean, variance, covariance, spread)


@dataclass(frozen=True)
class ExactPairs:
    """Covariances of f(x) from E x, Var x, Cov(x), Var f(x): closed form or whole series."""

    activation: Activation
    order: int

    def __call__(self, mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
        """Return the covariances."""
        result = self.activation.pair_covariance(mean, variance, covariance)
        if result is NotImplemented:
            result = mehler(self.activation, mean, covariance, order=self.order)
        return namespace(mean).where(off_diagonal_mask(mean), result, spread[..., None])

    def partials(self, mean: Array, variance: Array, covariance: Array, spread: Array) -> Any:
        """Return :meth:`Activation.pair_partials`."""
        return self.activation.pair_partials(mean, variance, covariance)


def opaque_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    fallback: Callable[..., Array],
    spread: Array,
) -> Array | None:
    """Return the truncated series as one operation of a captured program; else None."""
    if not is_large_enough(activation, mean, covariance) or not is_captured(mean, covariance):
        return None
    # A compiler would need minutes for the quadrature of two layers, and its code would
    # be slower than a few terms of the series.
    return call_as_operation(
        _OpaqueCovariance(activation, order, fallback), 1, mean, covariance, spread
    )


@dataclass(frozen=True)
class _OpaqueCovariance:
    """Covariances of f(x) from E x, Cov(x) and Var f(x), compared by value."""

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


# ----------------------------------------------------------------------------------------
# Large layers of JAX arrays: one expression for each entry, which a compiler computes, or its
# share of a gradient, in one pass over the correlations


ROOM = 1 << 16  # entries at a time
COMPILED_ORDER = {4: 24, 8: 48}  # terms beside a closed form, by the bytes of a number


def compiled_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    fallback: Callable,
    spread: Array,
) -> Array | None:
    """Return the covariance [..., d, d] of f(x) for a large layer of JAX arrays; else None.

    The compiled program holds a short series and, for rows in which the certificate does
    not hold for all pairs, the closed form or else the full series.
    """
    if not array_api_compat.is_jax_array(mean) or not activation.appell:
        return None
    if covariance.size < LARGE or covariance.shape[:-1] != mean.shape:
        return None
    arrays = mean, diagonal(covariance), covariance, spread
    flat = [array.reshape(-1, *array.shape[mean.ndim - 1 :]) for array in arrays]
    if has_closed_pairs(activation):
        layer = CompiledSeries(activation, COMPILED_ORDER[mean.dtype.itemsize], fallback)
    else:
        layer = CompiledSeries(activation, max(1, order // 2), CompiledSeries(activation, order))
    return layer(*flat).reshape(covariance.shape)


@dataclass(frozen=True)
class CompiledSeries:
    """Covariances of f(x) from E x, Var x, Cov(x) and Var f(x), and their tangents."""

    activation: Activation
    order: int  # number of terms
    # serves where the certificate does not hold, and may have ``partials``; None if the
    # series has to serve everywhere
    fallback: Any = None

    def __call__(self, *arrays: Array) -> Array:
        """Return the covariances, differentiable; equal layers are traced once."""
        return _traced_once(self)(*arrays)

    def value(self, *arrays: Array) -> Array:
        """Return the covariances."""
        return self._by_rows(self._of_rows)(*self._prepared(*arrays), *arrays)

    def tangent(self, primals: Any, tangents: Any) -> tuple[Array, Array]:
        """Return the covariances, and their derivative along changes of the arrays."""
        prepared = self._prepared(*primals)
        change = self._by_rows(self._tangent_of_rows)(*prepared, *primals, *tangents)
        return self(*primals), change

    def _prepared(self, *arrays: Array) -> tuple[Array, ...]:
        """Return the terms, and in which rows they are enough, if something else may serve."""
        terms = self._terms(*arrays[:2])
        return terms if self.fallback is None else (*terms, _is_certified(*terms, *arrays[2:]))

    def _terms(self, mean: Array, variance: Array) -> tuple[Array, Array]:
        """Return the coefficients [rows, order + 2, d], computed once, and 1/σ."""
        coefficients = self.activation.hermite(mean, variance, self.order + 2)
        stacked = namespace(mean).stack(coefficients, axis=-2)
        return optimization_barrier(stacked, 1 / safe_scale(variance))

    def _by_rows(self, function: Callable[..., Array]) -> Callable[..., Array]:
        """Make a function process some rows at a time, each by its own formula."""
        return function if self.fallback is None else checkpointed_rows(function, ROOM)

    def _of_rows(self, terms: Array, inverse: Array, *rest: Array) -> Array:
        series = partial(_series, terms, inverse)
        if self.fallback is None:
            return series(*rest)
        certified, *arrays = rest
        return cond(certified.all(), series, self.fallback, *arrays)

    def _tangent_of_rows(self, terms: Array, inverse: Array, *rest: Array) -> Array:
        series = partial(_series_partials, terms, inverse)
        if self.fallback is None:
            return _change(series(*rest[:4]), *rest[4:])
        chosen, both = rest[0].all(), rest[1:]
        arrays = both[:4]
        if not _has_pair_partials(self.fallback):
            along = lambda *both: _change(series(*both[:4]), *both[4:])  # noqa: E731
            return cond(chosen, along, directional_derivative(self.fallback), *both)
        # only what is not linear in the changes: a conditional, transposed, is two
        return _change(cond(chosen, series, self.fallback.partials, *arrays), *both[4:])

    def partials(self, *arrays: Array) -> tuple[Array, Array, Array]:
        """Return the derivatives of the series by E x, Var x and Cov(x)."""
        return _series_partials(*self._terms(*arrays[:2]), *arrays)


@functools.lru_cache(maxsize=64)
def _traced_once(layer: CompiledSeries) -> Callable[..., Array]:
    return with_tangent(layer.value, layer.tangent)


def _has_pair_partials(fallback: Any) -> bool:
    """Return whether a rule of pairs has derivatives in closed form."""
    if not isinstance(fallback, ExactPairs):
        return hasattr(fallback, "partials")
    # those of a class that replaces the covariances alone belong to others
    kinds = type(fallback.activation).__mro__
    return "pair_partials" in vars(next(kind for kind in kinds if "pair_covariance" in vars(kind)))


def _is_certified(terms: Array, inverse: Array, covariance: Array, spread: Array) -> Array:
    """Return in which rows the series is accurate enough for all pairs."""
    xp, order = namespace(terms), terms.shape[-2] - 2
    rho = clipped_correlation(covariance, outer(inverse, inverse))
    largest = xp.max(xp.where(off_diagonal_mask(inverse), xp.abs(rho), 0 * rho), axis=(-2, -1))
    explained = xp.sum(terms[..., :order, :] ** 2, axis=-2)
    share = largest_share_left(explained, spread, axis=-1)
    return largest ** (order + 1) * share <= TOLERANCE[terms.dtype.itemsize]


def _series(
    terms: Array, inverse: Array, mean: Array, variance: Array, covariance: Array, spread: Array
) -> Array:
    """Return the series, with Var f(x) on the diagonal."""
    first = _listed(terms)[:-2]
    rho = clipped_correlation(covariance, outer(inverse, inverse))
    total = rho * _sum(first, first, rho)
    return namespace(rho).where(off_diagonal_mask(mean), total, spread[..., None])


def _series_partials(
    terms: Array, inverse: Array, mean: Array, variance: Array, covariance: Array, spread: Array
) -> tuple[Array, Array, Array]:
    """Return :meth:`Activation.pair_partials` of the series."""
    size, listed = outer(inverse, inverse), _listed(terms)
    rho, first = clipped_correlation(covariance, size), listed[:-2]
    steep = [k * g for k, g in enumerate(first, start=1)]
    shifted = [math.sqrt(k + 1) * g for k, g in enumerate(listed[1:-1], start=1)]
    bent = [math.sqrt((k + 1) * (k + 2)) / 2 * g for k, g in enumerate(listed[2:], start=1)]
    slope, bend = (rho * _sum(side, first, rho) for side in (shifted, bent))
    first_row, second_row = inverse[..., None], (inverse**2)[..., None]
    return slope * first_row, bend * second_row, _sum(steep, first, rho) * size


def _change(partials: Any, mean: Array, variance: Array, covariance: Array, spread: Array) -> Array:
    """Return the derivative along changes of the moments and of Var f(x)."""
    by_mean, by_variance, by_covariance = partials
    side = by_mean * mean[..., None] + by_variance * variance[..., None]
    change = by_covariance * covariance + side + transpose(side)
    return namespace(change).where(off_diagonal_mask(mean), change, spread[..., None])


def _listed(terms: Array) -> list[Array]:
    return [terms[..., n, :] for n in range(terms.shape[-2])]


def _sum(left: list[Array], right: list[Array], rho: Array) -> Array:
    """Return Σ ρⁿ⁻¹ l_n(i) r_n(j)."""
    *others, (first, second) = zip(left, right, strict=True)
    total = outer(first, second)
    for first, second in reversed(others):
        total = rho * total + outer(first, second)
    return total
