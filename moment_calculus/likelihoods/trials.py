"""Likelihoods of binary outcomes, of numbers of successes, of ordered classes, and of shares.

Most are linear in E[log p] and E[log(1 − p)]; for p = S(f) these are −E[softplus(∓f)].
``tempered_`` are power means (1/a) log E[p(value)ᵃ].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from moment_calculus.likelihoods.expectations import (
    check_certain,
    expectation,
    expected_value,
    log_expectation,
    moments_of_observation,
)
from moment_calculus.likelihoods.links import (
    LOG_NDTR,
    expected_log_trials,
    log,
    log_probabilities,
    log_sigmoids,
    logit_of,
)
from moment_calculus.likelihoods.location_scale import difference
from moment_calculus.likelihoods.predictions import quantile_of_mean
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.distributions import entropy_term
from moment_calculus.numerics.special import (
    expit,
    gammaln,
    log_ndtr,
    namespace,
)
from moment_calculus.operations.elementwise.unary import is_value
from moment_calculus.values import Deferred


def _expected(logits: Any, probs: Any, successes: Any, failures: Any, total: Any) -> Array:
    """Return s E[log p] + f E[log(1 − p)] from a logit or a probability."""
    if logits is None and is_value(probs):
        logits = logit_of(probs)
    if logits is not None:
        return expected_log_trials(logits, successes, failures, total)
    one, zero = map(expected_value, log_probabilities(probs))
    return successes * one + failures * zero


def bernoulli(value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return E[log Bernoulli(value)] from ``logits`` or ``probs``, value or array."""
    # Measured relative error for |μ/σ| ≤ 8: probit 1e-9 for σ from 1e-3 to 1e2; logit
    # 1e-8 for σ up to 3, with an absolute error of 3e-10 at any σ (in single precision
    # 5e-5 and 5e-7).
    return _expected(logits, probs, value, 1 - value, 1)


def log_binomial_coefficient(total: Any, value: Array) -> Array:
    """Return the logarithm of the binomial coefficient."""
    total = total + 0.0 * value
    return gammaln(total + 1) - gammaln(value + 1.0) - gammaln(total - value + 1)


def log_orders(value: Array, total: Array) -> Array:
    """Return log Γ(y + k) − log Γ(k) − log y!, of y successes before failure k."""
    return gammaln(value + total) - gammaln(total) - gammaln(value + 1.0)


def binomial(value: Array, total_count: Any, *, logits: Any = None, probs: Any = None) -> Array:
    """Return E[log Binomial(value; total_count)] for a certain number of trials."""
    check_certain(total_count=total_count)
    trials = _expected(logits, probs, value, total_count - value, total_count)
    return log_binomial_coefficient(total_count, value) + trials


def negative_binomial(
    value: Array, total_count: Any, *, logits: Any = None, probs: Any = None
) -> Array:
    """Return E[log NegativeBinomial(value; total_count)]: successes before so many failures."""
    check_certain(total_count=total_count)
    total = total_count + 0.0 * value
    trials = _expected(logits, probs, value, total, total + value)
    return log_orders(value, total) + trials


def geometric(value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return E[log Geometric(value)]: failures before the first success."""
    return _expected(logits, probs, 1, value, 1 + value)


def ordered_logistic(value: Array, predictor: Any, cutpoints: Array) -> Array:
    """Return E[log OrderedLogistic(value; predictor, cutpoints)], exact (model: McCullagh 1980).

    With consecutive cut points b < a the probability S(a − f) − S(b − f) of a class is
    S(a − f) S(f − b) (1 − e^{b − a}), so that its expected logarithm needs two softpluses
    only.
    """
    check_certain(cutpoints=cutpoints)
    xp, last = namespace(cutpoints), cutpoints.shape[-1] - 1
    lower, upper = (_cut(cutpoints, xp.clip(value - step, min=0, max=last)) for step in (1, 0))
    below, above = difference(upper, predictor), difference(predictor, lower)
    inner = (value > 0) & (value <= last)
    gap = xp.where(inner, upper - lower, xp.ones_like(upper))
    zero = xp.zeros_like(gap)
    total = xp.where(inner, xp.log(-xp.expm1(-gap)), zero)
    total = total + xp.where(value <= last, expected_value(log_sigmoids(below)[0]), zero)
    return total + xp.where(value > 0, expected_value(log_sigmoids(above)[0]), zero)


def ordered_probabilities(predictor: Any, cutpoints: Array) -> tuple[Array, Array]:
    """Return mean and variance [..., classes] of class probabilities."""
    parts = [
        moments_of_observation(share, lambda f: 0 * f, predictor)
        for share in class_probability_functions(cutpoints)
    ]
    xp = namespace(parts[0][0])  # in a JAX program the cut points may be NumPy constants
    mean, variance = (xp.stack([part[i] for part in parts], axis=-1) for i in (0, 1))
    return mean / xp.sum(mean, axis=-1, keepdims=True), variance


def class_probability_functions(cutpoints: Array) -> list[Callable[[Array], Array]]:
    """Return for each class, in order, the function from f to its probability."""
    check_certain(cutpoints=cutpoints)
    places = [cutpoints[..., i] for i in range(cutpoints.shape[-1])]
    ends = zip([None, *places], [*places, None], strict=True)
    return [partial(_class_probability, lower, upper) for lower, upper in ends]


def _class_probability(lower: Any, upper: Any, f: Array) -> Array:
    """Return a class's probability between two cut points; None is infinite."""
    if upper is None:
        return expit(f - lower)
    below = expit(upper - f)
    return below if lower is None else below * expit(f - lower) * -namespace(f).expm1(lower - upper)


def _cut(cutpoints: Array, index: Array) -> Array:
    xp = namespace(cutpoints)
    wide = xp.broadcast_to(cutpoints, (*index.shape, cutpoints.shape[-1]))
    return xp.take_along_axis(wide, index[..., None], axis=-1)[..., 0]


def beta(value: Any, concentration1: Any, concentration0: Any) -> Array:
    """Return E[log Beta(value; a, b)], exact for certain a and b, else by quadrature.

    It is (a − 1) E[log y] + (b − 1) E[log(1 − y)] − log B(a, b).
    """
    if is_value(concentration1) or is_value(concentration0):
        log(concentration1), log(concentration0)  # raise if one may not be positive
        return expectation(_beta_density, *log_probabilities(value), concentration1, concentration0)
    a, b = concentration1, concentration0
    powers = _expected(None, value, a - 1, b - 1, a + b - 2)
    return powers - _log_beta(a + 0 * powers, b + 0 * powers)


def _beta_density(log_value: Array, log_rest: Array, a: Any, b: Any) -> Array:
    powers = (a - 1) * log_value + (b - 1) * log_rest
    return powers - _log_beta(a + 0 * powers, b + 0 * powers)


def _log_beta(a: Array, b: Array) -> Array:
    return gammaln(a) + gammaln(b) - gammaln(a + b)


def tempered_bernoulli(power: Any, value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return (1/a) log E[Bernoulli(value)ᵃ]."""
    return _tempered(power, logits, probs, value, 1 - value, sharp=False)


def tempered_binomial(
    power: Any, value: Array, total_count: Any, *, logits: Any = None, probs: Any = None
) -> Array:
    """Return (1/a) log E[Binomial(value; total_count)ᵃ]."""
    check_certain(total_count=total_count)
    trials = _tempered(power, logits, probs, value, total_count - value)
    return log_binomial_coefficient(total_count, value) + trials


def tempered_negative_binomial(
    power: Any, value: Array, total_count: Any, *, logits: Any = None, probs: Any = None
) -> Array:
    """Return (1/a) log E[NegativeBinomial(value; total_count)ᵃ]."""
    check_certain(total_count=total_count)
    total = total_count + 0.0 * value
    return log_orders(value, total) + _tempered(power, logits, probs, value, total)


def tempered_geometric(power: Any, value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return (1/a) log E[Geometric(value)ᵃ]."""
    return _tempered(power, logits, probs, 1.0 + 0 * value, value)


def _tempered(
    power: Any, logits: Any, probs: Any, successes: Any, failures: Any, sharp: bool = True
) -> Array:
    """Return (1/a) log E[(pˢ (1 − p)ᶠ)ᵃ] from a logit or a probability."""
    if logits is None and is_value(probs):
        logits = logit_of(probs)
    if logits is not None:
        arguments, logs = (logits,), log_sigmoids
    else:
        arguments, logs = _of_probability(*log_probabilities(probs))

    def density(successes: Array, failures: Array, *points: Array) -> Array:
        one, zero = logs(*points)
        return successes * one + failures * zero

    return log_expectation(density, successes, failures, *arguments, power=power, sharp=sharp)


def _of_probability(one: Any, zero: Any) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Return arguments, and a function of them that gives log p and log(1 − p)."""
    # For Φ(x) the two logarithms are functions of x and of −x: take x for both.
    if isinstance(one, Deferred) and one.function == LOG_NDTR and one.base is not zero.base:
        return (one.base,), lambda x: (log_ndtr(x), log_ndtr(-x))
    return (one, zero), lambda one, zero: (one, zero)


def tempered_ordered_logistic(power: Any, value: Array, predictor: Any, cutpoints: Array) -> Array:
    """Return (1/a) log E[OrderedLogistic(value; predictor, cutpoints)ᵃ]."""
    check_certain(cutpoints=cutpoints)

    def density(value: Array, predictor: Array) -> Array:
        return ordered_logistic(value, predictor, cutpoints)

    return log_expectation(density, value, predictor, power=power, sharp=False)


def ordered_entropy(predictor: Any, cutpoints: Array) -> Array:
    """Return E[H] of an ordered logistic likelihood, by quadrature over its predictor."""
    shares = class_probability_functions(cutpoints)
    knots = tuple(cutpoints[..., i] for i in range(cutpoints.shape[-1]))
    return expectation(
        lambda f: sum(entropy_term(share(f)) for share in shares), predictor, knots=knots
    )


def quantile_of_ordered(predictor: Any, cutpoints: Array, levels: np.ndarray) -> Array:
    """Return quantiles [levels, ..., classes] of class probabilities."""
    shares = class_probability_functions(cutpoints)
    parts = [quantile_of_mean(share, [predictor], levels) for share in shares]
    return namespace(parts[0]).stack(parts, axis=-1)
