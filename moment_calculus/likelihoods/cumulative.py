"""Distribution functions P(y ≤ k) of counts, of whole k ≥ 0 and certain parameters.

Source: Johnson, Kemp and Kotz 2005, Univariate discrete distributions: incomplete beta
and gamma functions in place of sums, so that the work does not grow with the counts.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.numerics.arrays import Array, expit, gammaincc, namespace
from moment_calculus.numerics.incomplete import betainc


def poisson_up_to(value: Array, rate: Array) -> Array:
    """Return P(y ≤ k) of a Poisson distribution."""
    return gammaincc(value + 1.0, rate)


def _odds(logits: Any, probs: Any) -> tuple[Array, Array]:
    """Return the probabilities of a success and of a failure."""
    if logits is None:
        return probs, 1 - probs
    return expit(logits), expit(-logits)


def binomial_up_to(
    value: Array, total_count: Any, *, logits: Array | None = None, probs: Array | None = None
) -> Array:
    """Return P(y ≤ k) of a binomial distribution."""
    success, failure = _odds(logits, probs)
    xp, rest = namespace(success), total_count - value
    below = betainc(xp.clip(rest, min=1.0), value + 1.0, failure, success)
    return xp.where(rest > 0, below, 1.0)


def negative_binomial_up_to(
    value: Array, total_count: Any, *, logits: Array | None = None, probs: Array | None = None
) -> Array:
    """Return P(y ≤ k) successes before so many failures."""
    success, failure = _odds(logits, probs)
    return betainc(total_count + 0 * failure, value + 1.0, failure, success)


def gamma_poisson_up_to(value: Array, concentration: Array, rate: Array) -> Array:
    """Return P(y ≤ k) of a Poisson distribution whose rate has a Gamma distribution."""
    shape = concentration + 0 * rate
    return betainc(shape, value + 1.0, rate / (1 + rate) + 0 * shape, 1 / (1 + rate) + 0 * shape)


def geometric_up_to(
    value: Array, *, logits: Array | None = None, probs: Array | None = None
) -> Array:
    """Return P(y ≤ k) failures before the first success."""
    _, failure = _odds(logits, probs)
    return 1 - failure ** (value + 1.0)
