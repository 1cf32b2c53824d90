"""How many terms of Mehler's series are enough for the pairs of a layer, by a certificate.

By Cauchy–Schwarz, N terms leave out at most |ρ|^(N+1) √(r_i r_j) in standard deviations
of f(x_i) and f(x_j), with r = 1 − Σ g_n²/Var f, the share of the variance that is left.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from moment_calculus.functions.base import Activation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import namespace

TOLERANCE = {4: 3e-8, 8: 1e-12}  # of the certificate, by the bytes of a number
MEASURABLE = {4: 1e-4, 8: 1e-8}  # smaller shares may be errors of the variance
FEW_TERMS = 20  # if so many terms are enough for all pairs, none is computed in closed form
FIRST = (FEW_TERMS // 2, FEW_TERMS)  # numbers of terms that are tried first
CANDIDATES = (12, 16, 24, 32, 48)  # numbers of terms beside pairs in closed form
CLOSED_FORM_COST = 64  # the closed form takes as long as so many terms
SINGLE_PAIR_COST = 2.0 * CLOSED_FORM_COST  # the same for single pairs in closed form


class Truncation(NamedTuple):
    """A number of terms, and the pairs for which they are enough."""

    terms: Array  # g_n, two more than are summed: [order + 2, batch, d]
    bound: float  # |ρ| up to which they are enough


@functools.lru_cache(maxsize=256)
def has_closed_pairs(activation: Activation) -> bool:
    """Return whether an activation with number parameters has pair covariances in closed form."""
    result = activation.pair_covariance(np.zeros(2), np.ones(2), np.eye(2))
    return result is not NotImplemented


def cheapest_truncation(
    activation: Activation, moments: tuple[Array, ...], rho: Array, order: int
) -> Truncation | None:
    """Return the cut that takes the least time; None for the closed form, or if a ρ is NaN.

    ``moments`` are E x, Var x and Var f(x), [batch, d]; ρ is zero on the diagonal.
    ``order`` is the largest number of terms, which has to be enough if there is no closed
    form.
    """
    xp, closed = namespace(rho), has_closed_pairs(activation)
    largest = max(float(xp.max(rho)), -float(xp.min(rho)))
    if not largest <= 1:
        return None
    tolerance, limit = TOLERANCE[rho.dtype.itemsize], CLOSED_FORM_COST if closed else order
    count = _terms_without_shares(largest, tolerance, limit)
    for tried in sorted({min(first, count) for first in (*FIRST, count)}):
        terms = xp.stack(list(activation.hermite(moments[0], moments[1], tried + 2)), axis=0)
        bounds = _bounds(terms[:-2], moments[2], tolerance)
        enough = next((n for n, bound in enumerate(bounds, start=1) if bound >= largest), None)
        if enough is not None and enough <= FEW_TERMS:
            return Truncation(terms[: enough + 2], 1.0)
    if closed:
        return _beside_closed_form(terms, bounds, enough, rho)
    return Truncation(terms[: (enough or count) + 2], 1.0)


def _terms_without_shares(largest: float, tolerance: float, limit: int) -> int:
    """Return a number of terms that is enough whatever shares of the variance they have."""
    if largest in (0.0, 1.0):
        return limit if largest else 1
    return min(limit, max(1, math.ceil(math.log(tolerance) / math.log(largest)) - 1))


def largest_share_left(terms: Array, variance: Array) -> Array:
    """Return the largest share of a variance that n = 1, 2, … terms leave, [order]."""
    xp, random = namespace(terms), variance > 0
    shares = xp.cumulative_sum(terms * terms, axis=0) / xp.where(random, variance, 1 + 0 * variance)
    rest = xp.max(xp.where(random, 1 - shares, 0 * shares), axis=tuple(range(1, terms.ndim)))
    return xp.clip(rest, min=MEASURABLE[terms.dtype.itemsize])


def _bounds(terms: Array, variance: Array, tolerance: float) -> list[float]:
    """Return |ρ| up to which n = 1, 2, … terms are enough."""
    shares = largest_share_left(terms, variance).tolist()
    return [min(1.0, (tolerance / share) ** (1 / (n + 1))) for n, share in enumerate(shares, 1)]


def _beside_closed_form(
    terms: Array, bounds: list[float], enough: int | None, rho: Array
) -> Truncation | None:
    """Return few terms, with some pairs in closed form, or terms for all; None if too slow."""
    xp = namespace(rho)
    size = xp.abs(rho)
    costs = {} if enough is None else {enough: float(enough)}
    for fewer in CANDIDATES:
        if fewer < min(len(bounds), enough or CLOSED_FORM_COST):
            closed_share = float(xp.mean(xp.astype(size > bounds[fewer - 1], rho.dtype)))
            costs[fewer] = fewer + SINGLE_PAIR_COST * closed_share
    if not costs or min(costs.values()) > CLOSED_FORM_COST:
        return None
    order = min(costs, key=costs.__getitem__)
    return Truncation(terms[: order + 2], 1.0 if order == enough else bounds[order - 1])
