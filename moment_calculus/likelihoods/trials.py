"""Likelihoods of outcomes, numbers of successes, classes, shares, counts and waiting times.

Most are linear in E[log p] and E[log(1 − p)]; for p = S(f) these are −E[softplus(∓f)].
Those of a rate, but for two, are linear in E[log rate] and E[rate], in closed form for
exp(h). ``tempered_`` are power means (1/a) log E[p(value)ᵃ]: rates enter them by their
logarithms, as functions of the Gaussian behind them, so that nothing underflows where
the quadrature reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moment_calculus.functions.families.elementary import capped_exp
from moment_calculus.functions.families.named import log_1p_exp
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import (
    check_certain,
    expectation,
    expected_value,
    log_expectation,
    smooth_expectation,
)
from moment_calculus.likelihoods.links import (
    LOG_NDTR,
    expected_log,
    expected_log_trials,
    log,
    log_probabilities,
    log_sigmoids,
    logit_of,
    logs_of_factors,
)
from moment_calculus.likelihoods.location_scale import product_or_zero
from moment_calculus.numerics.arrays import (
    Array,
    gammaln,
    log_ndtr,
    namespace,
)
from moment_calculus.operations.elementwise.elementary import power as power_of
from moment_calculus.operations.elementwise.unary import apply, is_value, scale_shift
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
    """Return E[log NegativeBinomial(value; total_count)]: successes before so many failures.

    A random number of failures needs quadrature.
    """
    if is_value(total_count):
        arguments, density = _negative_binomial_density(logits, probs)
        logs_of_factors(total_count)  # raises UnsupportedMoments if it may not be positive
        return smooth_expectation(density, value, total_count, *arguments)
    total = total_count + 0.0 * value
    trials = _expected(logits, probs, value, total, total + value)
    return log_orders(value, total) + trials


def _negative_binomial_density(logits: Any, probs: Any) -> tuple[tuple, Callable[..., Array]]:
    """Return the arguments of a log density (value, total_count, *arguments), and itself."""
    arguments, logs = _logs_of_odds(logits, probs)

    def density(value: Array, total: Array, *points: Array) -> Array:
        one, zero = logs(*points)
        total = total + 0.0 * (one + value)
        return log_orders(value, total) + value * one + total * zero

    return arguments, density


def geometric(value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return E[log Geometric(value)]: failures before the first success."""
    return _expected(logits, probs, 1, value, 1 + value)


def beta(value: Any, concentration1: Any, concentration0: Any) -> Array:
    """Return E[log Beta(value; a, b)], exact for certain a and b, else by quadrature.

    It is (a − 1) E[log y] + (b − 1) E[log(1 − y)] − log B(a, b).
    """
    if is_value(concentration1) or is_value(concentration0):
        logs_of_factors(concentration1)
        logs_of_factors(concentration0)
        return smooth_expectation(
            _beta_density, *log_probabilities(value), concentration1, concentration0
        )
    a, b = concentration1, concentration0
    powers = _expected(None, value, a - 1, b - 1, a + b - 2)
    return powers - _log_beta(a + 0 * powers, b + 0 * powers)


def _beta_density(log_value: Array, log_rest: Array, a: Any, b: Any) -> Array:
    powers = (a - 1) * log_value + (b - 1) * log_rest
    return powers - _log_beta(a + 0 * powers, b + 0 * powers)


def beta_binomial(value: Array, concentration1: Any, concentration0: Any, total: Any) -> Array:
    """Return E[log BetaBinomial(value; a, b, n)] by quadrature.

    It is log C(n, y) + log B(y + a, n − y + b) − log B(a, b).
    """
    check_certain(total_count=total)
    logs_of_factors(concentration1)
    logs_of_factors(concentration0)
    terms = smooth_expectation(_beta_ratio, value, total - value, concentration1, concentration0)
    return log_binomial_coefficient(total, value) + terms


def _beta_ratio(successes: Array, failures: Array, a: Any, b: Any) -> Array:
    zero = 0 * a + 0 * b + 0.0 * successes
    return _log_beta(successes + a + zero, failures + b + zero) - _log_beta(a + zero, b + zero)


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
    if is_value(total_count):
        arguments, density = _negative_binomial_density(logits, probs)
        logs_of_factors(total_count)  # raises UnsupportedMoments if it may not be positive
        return log_expectation(density, value, total_count, *arguments, power=power)
    total = total_count + 0.0 * value
    return log_orders(value, total) + _tempered(power, logits, probs, value, total)


def tempered_geometric(power: Any, value: Array, *, logits: Any = None, probs: Any = None) -> Array:
    """Return (1/a) log E[Geometric(value)ᵃ]."""
    return _tempered(power, logits, probs, 1.0 + 0 * value, value)


def _tempered(
    power: Any, logits: Any, probs: Any, successes: Any, failures: Any, sharp: bool = True
) -> Array:
    """Return (1/a) log E[(pˢ (1 − p)ᶠ)ᵃ] from a logit or a probability."""
    arguments, logs = _logs_of_odds(logits, probs)

    def density(successes: Array, failures: Array, *points: Array) -> Array:
        one, zero = logs(*points)
        return successes * one + failures * zero

    return log_expectation(density, successes, failures, *arguments, power=power, sharp=sharp)


def _logs_of_odds(logits: Any, probs: Any) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Return arguments, and a function of them that gives log p and log(1 − p)."""
    if logits is None and is_value(probs):
        logits = logit_of(probs)
    return (
        _of_probability(*log_probabilities(probs)) if logits is None else ((logits,), log_sigmoids)
    )


def _of_probability(one: Any, zero: Any) -> tuple[tuple[Any, ...], Callable[..., Any]]:
    """Return arguments, and a function of them that gives log p and log(1 − p)."""
    # For Φ(x) the two logarithms are functions of x and of −x: take x for both.
    if isinstance(one, Deferred) and one.function == LOG_NDTR and one.base is not zero.base:
        return (one.base,), lambda x: (log_ndtr(x), log_ndtr(-x))
    return (one, zero), lambda one, zero: (one, zero)


def poisson(value: Array, rate: Any) -> Array:
    """Return E[log Poisson(value; rate)] = y E[log λ] − E[λ] − log y!."""
    return value * expected_log(rate) - expected_value(rate) - gammaln(value + 1.0)


def exponential(value: Array, rate: Any) -> Array:
    """Return E[log Exponential(value; rate)] = E[log λ] − y E[λ]."""
    if is_value(value) and is_value(rate):
        return smooth_expectation(_log_gamma, value, 1.0, rate)
    return expected_log(rate) - product_or_zero(expected_value(value), expected_value(rate))


def gamma(value: Array, concentration: Any, rate: Any) -> Array:
    """Return E[log Gamma(value; concentration, rate)].

    For certain k it is k E[log λ] + (k − 1) log y − y E[λ] − log Γ(k); else quadrature.
    """
    if is_value(concentration) or (is_value(value) and is_value(rate)):
        logs_of_factors(concentration)
        logs_of_factors(rate)
        return smooth_expectation(_log_gamma, value, concentration, rate)
    log_value, log_rate = expected_log(value), expected_log(rate)
    shape = concentration + 0.0 * log_value
    product = product_or_zero(expected_value(value), expected_value(rate))
    return _gamma_terms(shape, log_value, log_rate) - product


def inverse_gamma(value: Any, concentration: Any, rate: Any) -> Array:
    """Return E[log InverseGamma(value; concentration, rate)] = E[log Gamma(1/y) − 2 log y]."""
    inverse = power_of(value, -1.0) if is_value(value) else 1 / value
    return gamma(inverse, concentration, rate) - 2 * expected_value(log(value))


def _log_gamma(value: Array, concentration: Array, rate: Array) -> Array:
    xp = namespace(value)
    log_rate = xp.log(rate) if hasattr(rate, "shape") else log(rate)
    return _gamma_terms(concentration, xp.log(value), log_rate) - value * rate


def _gamma_terms(shape: Any, log_value: Array, log_rate: Any) -> Array:
    """Return k log λ + (k − 1) log y − log Γ(k), a log Gamma density but for −λy."""
    return shape * log_rate + (shape - 1) * log_value - gammaln(shape)


def weibull(value: Array, scale: Any, concentration: Any) -> Array:
    """Return E[log Weibull(value; scale, concentration)].

    For certain k it is log k − k E[log s] + (k − 1) log y − E[exp(k (log y − log s))]; else
    quadrature. Over a log-normal k the mean is infinite, by the tail of k beyond 14 standard
    deviations of its logarithm, which the quadrature leaves out.
    """
    log_value, logs = log(value), logs_of_factors(scale)
    if is_value(concentration):
        logs_of_factors(concentration)  # raises UnsupportedMoments if it may not be positive
        return smooth_expectation(_of_sum(_log_weibull), log_value, concentration, *logs)
    if is_value(value) and not is_value(scale):
        powers = scale_shift(log_value, concentration, -concentration * logs[0])
        power = expected_value(apply(activation("exp"), powers))
    else:
        power = expectation(
            _of_sum(lambda y, k, s: namespace(y).exp(k * (y - s))), log_value, concentration, *logs
        )
    linear = (concentration - 1) * expected_value(log_value) - concentration * expected_log(scale)
    return log(concentration) + linear - power


def _log_weibull(log_value: Any, concentration: Any, log_scale: Any) -> Array:
    distance = log_value - log_scale
    xp, scaled = namespace(distance), concentration * distance
    return xp.log(concentration) + scaled - log_value - xp.exp(scaled)


def gamma_poisson(value: Array, concentration: Any, rate: Any) -> Array:
    """Return E[log GammaPoisson(value; concentration, rate)]; a random k needs quadrature.

    Source: the Poisson-gamma mixture, (λ/(1 + λ))ᵏ (1 + λ)⁻ʸ.
    """
    logs = logs_of_factors(rate)
    if is_value(concentration) or len(logs) > 1:
        logs_of_factors(concentration)  # raises UnsupportedMoments if it may not be positive
        return smooth_expectation(_of_sum(log_gamma_poisson_density), value, concentration, *logs)
    shape = concentration + 0.0 * value
    trials = expected_log_trials(logs[0], shape, value, shape + value)
    return log_orders(value, shape) + trials


def _of_sum(density: Callable[..., Array]) -> Callable[..., Array]:
    """Return a density (value, shape, log rate) of several logarithms, which are summed."""
    return lambda value, shape, *logs: density(value, shape, sum(logs))


def log_gamma_poisson_density(value: Array, concentration: Any, log_rate: Any) -> Array:
    """Return the logarithm of Γ(k + y) / (Γ(k) y!) (λ/(1 + λ))ᵏ (1 + λ)⁻ʸ."""
    log_rate = log_rate + 0.0 * value
    log_total = log_1p_exp(log_rate)
    shape = concentration + 0.0 * value
    return log_orders(value, shape) + shape * (log_rate - log_total) - value * log_total


def tempered_poisson(power: Any, value: Array, rate: Any) -> Array:
    """Return (1/a) log E[Poisson(value; rate)ᵃ]."""

    def density(value: Array, *logs: Array) -> Array:
        return value * sum(logs) - capped_exp(sum(logs))

    log_mean = log_expectation(density, value, *logs_of_factors(rate), power=power)
    return log_mean - gammaln(value + 1.0)


def tempered_exponential(power: Any, value: Array, rate: Any) -> Array:
    """Return (1/a) log E[Exponential(value; rate)ᵃ]."""

    def density(value: Array, *logs: Array) -> Array:
        return sum(logs) - value * capped_exp(sum(logs))

    return log_expectation(density, value, *logs_of_factors(rate), power=power)


def tempered_gamma(power: Any, value: Array, concentration: Any, rate: Any) -> Array:
    """Return (1/a) log E[Gamma(value; concentration, rate)ᵃ]."""
    logs_of_factors(concentration)  # raises UnsupportedMoments if it may not be positive

    def density(value: Array, log_value: Array, shape: Any, *logs: Any) -> Array:
        shape, log_rate = shape + 0.0 * log_value, sum(logs) + 0.0 * log_value
        return _gamma_terms(shape, log_value, log_rate) - value * capped_exp(log_rate)

    arguments = value, log(value), concentration, *logs_of_factors(rate)
    return log_expectation(density, *arguments, power=power)


def tempered_gamma_poisson(power: Any, value: Array, concentration: Any, rate: Any) -> Array:
    """Return (1/a) log E[GammaPoisson(value; concentration, rate)ᵃ]."""
    logs_of_factors(concentration)  # raises UnsupportedMoments if it may not be positive
    arguments = value, concentration, *logs_of_factors(rate)
    return log_expectation(_of_sum(log_gamma_poisson_density), *arguments, power=power)
