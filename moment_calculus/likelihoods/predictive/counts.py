"""Power means (1/a) log E[p(value)ᵃ] of likelihoods of counts and waiting times.

Every function takes the power a, and then the arguments of the function without the
prefix ``tempered_``. Rates and probabilities enter by their logarithms, as functions of
the Gaussian behind them, so that nothing underflows where the quadrature reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.functions.families.elementary import capped_exp
from moment_calculus.likelihoods.expectations import check_certain, log_expectation
from moment_calculus.likelihoods.links import (
    LOG_NDTR,
    log,
    log_probabilities,
    log_sigmoids,
    logit_of,
)
from moment_calculus.likelihoods.rates import log_gamma_poisson_density
from moment_calculus.likelihoods.trials import log_binomial_coefficient, ordered_logistic
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import gammaln, log_ndtr
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.values import Deferred


def tempered_bernoulli(power: Any, value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return (1/a) log E[Bernoulli(value)ᵃ]."""
    return _trials(power, logits, probs, value, 1 - value, sharp=False)


def tempered_binomial(
    power: Any, value: Array, total_count: Any, *, logits: Any = None, probs: Any = None
) -> Array:
    """Return (1/a) log E[Binomial(value; total_count)ᵃ]."""
    check_certain(total_count=total_count)
    trials = _trials(power, logits, probs, value, total_count - value)
    return log_binomial_coefficient(total_count, value) + trials


def tempered_negative_binomial(
    power: Any, value: Array, total_count: Any, *, logits: Any = None, probs: Any = None
) -> Array:
    """Return (1/a) log E[NegativeBinomial(value; total_count)ᵃ]."""
    check_certain(total_count=total_count)
    total = total_count + 0.0 * value
    ways = gammaln(total + value) - gammaln(value + 1.0) - gammaln(total)
    return ways + _trials(power, logits, probs, value, total)


def tempered_geometric(power: Any, value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return (1/a) log E[Geometric(value)ᵃ]."""
    return _trials(power, logits, probs, 1.0 + 0 * value, value)


def _trials(
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


def tempered_poisson(power: Any, value: Array, rate: Any) -> Array:
    """Return (1/a) log E[Poisson(value; rate)ᵃ]."""

    def density(value: Array, log_rate: Array) -> Array:
        return value * log_rate - capped_exp(log_rate)

    return log_expectation(density, value, log(rate), power=power) - gammaln(value + 1.0)


def tempered_exponential(power: Any, value: Array, rate: Any) -> Array:
    """Return (1/a) log E[Exponential(value; rate)ᵃ]."""

    def density(value: Array, log_rate: Array) -> Array:
        return log_rate - value * capped_exp(log_rate)

    return log_expectation(density, value, log(rate), power=power)


def tempered_gamma(power: Any, value: Array, concentration: Any, rate: Any) -> Array:
    """Return (1/a) log E[Gamma(value; concentration, rate)ᵃ]."""
    log(concentration)  # raises UnsupportedMoments if it may not be positive

    def density(value: Array, log_value: Array, shape: Any, log_rate: Any) -> Array:
        shape, log_rate = shape + 0.0 * log_value, log_rate + 0.0 * log_value
        powers = shape * log_rate + (shape - 1) * log_value
        return powers - value * capped_exp(log_rate) - gammaln(shape)

    arguments = value, log(value), concentration, log(rate)
    return log_expectation(density, *arguments, power=power)


def tempered_gamma_poisson(power: Any, value: Array, concentration: Any, rate: Any) -> Array:
    """Return (1/a) log E[GammaPoisson(value; concentration, rate)ᵃ]."""
    log(concentration)  # raises UnsupportedMoments if it may not be positive
    arguments = value, concentration, log(rate)
    return log_expectation(log_gamma_poisson_density, *arguments, power=power)


def tempered_ordered_logistic(power: Any, value: Array, predictor: Any, cutpoints: Array) -> Array:
    """Return (1/a) log E[OrderedLogistic(value; predictor, cutpoints)ᵃ]."""
    check_certain(cutpoints=cutpoints)

    def density(value: Array, predictor: Array) -> Array:
        return ordered_logistic(value, predictor, cutpoints)

    return log_expectation(density, value, predictor, power=power, sharp=False)
