"""Mehler's series of all pairs, cut where a certificate shows that the rest rounds away.

It serves eager programs, which see the correlations: most of those of a layer are small, and a few
terms are enough. Where few pairs need more terms, those are computed in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from moment_calculus.functions.base import Activation, correlation
from moment_calculus.functions.pairs.cuts import cheapest_cut
from moment_calculus.functions.pairs.powers import gathered, summed
from moment_calculus.numerics.arrays import Array, diagonal, outer, set_diagonal
from moment_calculus.numerics.derivatives.pullbacks import Pullback, is_eager, with_pullback
from moment_calculus.numerics.special import constants, namespace, safe_scale, stop_gradient

SMALLEST = 4096  # matrix entries from which on the certificate pays
General = Callable[..., Array]


def certified_covariance(
    activation: Activation,
    mean: Array,
    covariance: Array,
    order: int,
    general: General,
    spread: Array,
) -> Array | None:
    """Return the covariance [..., d, d] of f(x) by a short series; None where nothing is gained.

    The error is at most 3e-8 standard deviations of f(x_i) and f(x_j), 1e-12 in double precision,
    or that of ``order`` terms. ``general`` computes the same for derivatives of the gradient.
    """
    if not is_worth_a_look(activation, mean, covariance) or not is_eager(mean, covariance):
        return None
    xp, size = namespace(mean), mean.shape[-1]
    flat = xp.reshape(covariance, (-1, size, size))
    mean, spread = (xp.reshape(part, (-1, size)) for part in (mean, spread))
    found = _of_batch(activation, (mean, diagonal(flat), spread), flat, order, general)
    return None if found is None else xp.reshape(found, covariance.shape)


def is_worth_a_look(activation: Activation, mean: Array, covariance: Array) -> bool:
    """Return whether a layer is large enough for the certificate, and its series can be cut."""
    return (
        activation.appell
        and math.prod(covariance.shape) >= SMALLEST
        and covariance.shape[:-1] == mean.shape
    )


def _of_batch(
    activation: Activation,
    moments: tuple[Array, Array, Array],
    covariance: Array,
    order: int,
    general: General,
) -> Array | None:
    mean, variance, spread = moments
    held = tuple(map(stop_gradient, moments))
    rho = _correlations(held[1], stop_gradient(covariance))
    cut = cheapest_cut(activation, held, rho, order)
    if cut is None:
        return None
    above = _above(rho, cut.bound)
    for place in _both_sides(above):
        rho[place] = 0
    series = with_pullback(_series(cut.terms, rho, 1 / safe_scale(held[1])), general)
    result = series(mean, variance, covariance, spread)
    if above:
        values = _closed_pairs(activation, mean, variance, covariance, above)
        for place in _both_sides(above):
            result[place] = values
    return result


def _correlations(variance: Array, covariance: Array) -> Array:
    """Return the correlations, zero on the diagonal."""
    rho = correlation(variance, covariance)
    set_diagonal(rho, 0)
    return rho


def _above(rho: Array, bound: float) -> tuple[Array, ...]:
    """Return batch places, rows and columns of the pairs with |ρ| > bound, each pair once."""
    if bound >= 1:
        return ()
    xp = namespace(rho)
    batch, rows, columns = xp.nonzero(xp.abs(rho) > bound)
    once = rows < columns
    return batch[once], rows[once], columns[once]


def _both_sides(places: tuple[Array, ...]) -> list[tuple[Array, ...]]:
    if not places:
        return []
    batch, rows, columns = places
    return [(batch, rows, columns), (batch, columns, rows)]


def _closed_pairs(
    activation: Activation,
    mean: Array,
    variance: Array,
    covariance: Array,
    places: tuple[Array, ...],
) -> Array:
    """Return the covariances of single pairs in closed form, [pairs]."""
    xp = namespace(mean)
    batch, rows, columns = places
    sides = ((batch, rows), (batch, columns))
    means, variances = (
        xp.stack([part[side] for side in sides], axis=-1) for part in (mean, variance)
    )
    crossed = covariance[places][:, None, None] * constants(1 - np.eye(2), mean)
    matrices = crossed + variances[:, :, None] * constants(np.eye(2), mean)
    return activation.pair_covariance(means, variances, matrices)[:, 0, 1]


def _series(terms: Array, rho: Array, inverse: Array) -> Callable[..., tuple[Array, Pullback]]:
    """Return a function to the series, with the variances on the diagonal, and its gradient.

    ``terms`` are Hermite coefficients, two more than are summed, [order + 2, batch, d].
    """
    xp = namespace(rho)

    def function(*arrays: Array) -> tuple[Array, Pullback]:
        values, slopes = summed(terms[:-2], rho)
        set_diagonal(values, arrays[-1])
        set_diagonal(slopes, 0)

        def pullback(gradient: Array) -> tuple[Any, ...]:
            sums = gathered(terms[:-2], rho, gradient)
            n = constants(np.arange(1.0, len(sums) + 1)[:, None, None], rho)
            by_mean = xp.sum((n + 1) ** 0.5 * terms[1:-1] * sums, axis=0) * inverse
            bends = xp.sum(((n + 1) * (n + 2)) ** 0.5 * terms[2:] * sums, axis=0)
            by_covariance = gradient * slopes * outer(inverse, inverse)
            return by_mean, bends * inverse * inverse / 2, by_covariance, diagonal(gradient)

        return values, pullback

    return function
