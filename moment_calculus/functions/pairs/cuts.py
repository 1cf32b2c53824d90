"""How many terms of Mehler's series serve the pairs of a layer, by a certificate.

By Cauchy–Schwarz, what N terms leave out is at most |ρ|^(N+1) √(r_i r_j) in standard deviations of
f(x_i) and f(x_j), with the share r = 1 − Σ g_n²/Var f of the variance that is left.
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
MEASURABLE = {4: 1e-4, 8: 1e-8}  # a smaller share of a variance may be that one's own error
FEW = 20  # terms, up to which no pairs are left out
FIRST = (FEW // 2, FEW)  # numbers of terms that are tried before all that may be needed
CANDIDATES = (12, 16, 24, 32, 48)  # numbers of terms beside which they may be
MOST = 64  # terms that take as long as the closed form
APART = 2.0 * MOST  # the same, of pairs that are picked out


class Cut(NamedTuple):
    """Terms that serve pairs.

    Args:
        terms: Hermite coefficients g_n, two more than are summed, [order + 2, batch, d].
        bound: |ρ| up to which they serve.
    """

    terms: Array
    bound: float


@functools.lru_cache(maxsize=256)
def has_closed_pairs(activation: Activation) -> bool:
    """Whether an activation has covariances of pairs in closed form.

    Args:
        activation: whose parameters are numbers.
    """
    found = activation.pair_covariance(np.zeros(2), np.ones(2), np.eye(2))
    return found is not NotImplemented


def cheapest_cut(
    activation: Activation, moments: tuple[Array, ...], rho: Array, order: int
) -> Cut | None:
    """The cut that takes the least time; None if that is the closed form, or a number is missing.

    Args:
        activation: f.
        moments: E x, Var x and Var f(x), [batch, d].
        rho: correlations, zero on the diagonal, [batch, d, d].
        order: number of terms at most, and those that serve if there is no closed form.
    """
    xp, closed = namespace(rho), has_closed_pairs(activation)
    largest = max(float(xp.max(rho)), -float(xp.min(rho)))
    if not largest <= 1:
        return None
    tolerance, limit = TOLERANCE[rho.dtype.itemsize], MOST if closed else order
    count = _terms_without_shares(largest, tolerance, limit)
    for tried in sorted({min(first, count) for first in (*FIRST, count)}):
        terms = xp.stack(list(activation.hermite(moments[0], moments[1], tried + 2)), axis=0)
        bounds = _bounds(terms[:-2], moments[2], tolerance)
        enough = next((n for n, bound in enumerate(bounds, start=1) if bound >= largest), None)
        if enough is not None and enough <= FEW:
            return Cut(terms[: enough + 2], 1.0)
    if closed:
        return _beside_closed_form(terms, bounds, enough, rho)
    return Cut(terms[: (enough or count) + 2], 1.0)


def _terms_without_shares(largest: float, tolerance: float, limit: int) -> int:
    """Number of terms that are enough however the variance is shared."""
    if largest in (0.0, 1.0):
        return limit if largest else 1
    return min(limit, max(1, math.ceil(math.log(tolerance) / math.log(largest)) - 1))


def largest_share_left(terms: Array, variance: Array) -> Array:
    """The largest share of a variance that n = 1, 2, … terms leave, [order].

    Args:
        terms: Hermite coefficients g_n, [order, ..., d].
        variance: Var f(x), [..., d].
    """
    xp, random = namespace(terms), variance > 0
    shares = xp.cumulative_sum(terms * terms, axis=0) / xp.where(random, variance, 1 + 0 * variance)
    rest = xp.max(xp.where(random, 1 - shares, 0 * shares), axis=tuple(range(1, terms.ndim)))
    return xp.clip(rest, min=MEASURABLE[terms.dtype.itemsize])


def _bounds(terms: Array, variance: Array, tolerance: float) -> list[float]:
    """|ρ| up to which n = 1, 2, … terms serve."""
    shares = largest_share_left(terms, variance).tolist()
    return [min(1.0, (tolerance / share) ** (1 / (n + 1))) for n, share in enumerate(shares, 1)]


def _beside_closed_form(
    terms: Array, bounds: list[float], enough: int | None, rho: Array
) -> Cut | None:
    """Few terms and some pairs in closed form, or as many terms as are enough."""
    xp = namespace(rho)
    size = xp.abs(rho)
    costs = {} if enough is None else {enough: float(enough)}
    for fewer in CANDIDATES:
        if fewer < min(len(bounds), enough or MOST):
            apart = float(xp.mean(xp.astype(size > bounds[fewer - 1], rho.dtype)))
            costs[fewer] = fewer + APART * apart
    if not costs or min(costs.values()) > MOST:
        return None
    order = min(costs, key=costs.__getitem__)
    return Cut(terms[: order + 2], 1.0 if order == enough else bounds[order - 1])
