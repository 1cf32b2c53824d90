"""E log(1 + x²), the expected log-likelihood of Student's t, with its derivatives.

log(1 + z) = ∫ (1 − e^{−tz}) e^{−t} dt/t, where E e^{−tx²} of Gaussian x has a closed form, by the
trapezoidal rule in s = log t. The integrand is analytic within π/2 of the real axis, so that the
rule is accurate to exp(−π²/step). Left of the first node it is eˢ E[x²], a geometric series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.execution import sums
from moment_calculus.numerics.normal.univariate import is_single
from moment_calculus.numerics.special import elementwise, namespace, stop_gradient

PIECE = 1 << 14  # bytes of elements computed together: their nodes stay in a processor's cache


@dataclass(frozen=True)
class _Rule:
    """What one precision needs.

    Args:
        nodes: number of nodes.
        start: how far to the left of −log(1 + E x²) the first node is.
        end: the last node.
    """

    nodes: int
    start: float
    end: float


RULES = {True: _Rule(26, 7.0, 2.8), False: _Rule(100, 12.0, 3.7)}


def _together(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """The value, and its derivatives by μ and v."""
    xp, rule = namespace(mean), RULES[is_single(mean)]
    square = mean * mean
    start = -xp.log1p(stop_gradient(square + variance)) - rule.start
    step = (rule.end - start) / (rule.nodes - 1)

    def term(place: Any) -> tuple[Array, ...]:
        rate = xp.exp(start + step * place)
        inverse = 1 / (1 + 2 * rate * variance)
        root, reach = xp.sqrt(inverse), rate * inverse
        # 1 − E e^{−tx²} = (1 − root) + root (1 − e^{−tμ²/blur}), without cancellation
        away = -xp.expm1(-square * reach)
        damping = xp.exp(-rate)
        kept = damping * root * (1 - away) * reach
        return damping * (2 * variance * reach / (1 + root) + root * away), kept, kept * reach

    value, gain, bend = sums(term, np.arange(float(rule.nodes))[:, None], mean)
    left = xp.exp(start) / xp.expm1(step)
    return (
        step * (value + left * (square + variance)),
        2 * step * mean * (gain + left),
        step * (gain + left - 2 * square * bend),
    )


def _value(mean: Array, variance: Array) -> Array:
    return _together(mean, variance)[0]


def _partials(mean: Array, variance: Array) -> Any:
    return (_together(mean, variance)[1:],)


_expected = elementwise(_value, _partials, together=_together, piece=PIECE)


def expected_log1p_square(mean: Array, variance: Array) -> Array:
    """E log(1 + x²) of Gaussian x.

    Measured relative errors for σ from 1e-3 to 1e2: 2e-11 in double precision; in single 1e-6 for
    |μ| up to 30 and 1e-5 up to 800, of the derivative by μ 1e-5 and 3e-4.

    Args:
        mean: μ.
        variance: v, of the same shape.
    """
    xp = namespace(mean)
    return _expected(*xp.broadcast_arrays(mean, variance))
