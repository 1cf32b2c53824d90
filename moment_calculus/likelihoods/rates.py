"""Likelihoods of counts and waiting times, whose rate is a positive function of a Gaussian.

All but the last two are linear in E[log rate] and E[rate], which the calculus has in
closed form for exp(h) and by the universal rule for any other function. ``tempered_`` are
power means (1/a) log E[p(value)ᵃ]: rates enter them by their logarithms, as functions of
the Gaussian behind them, so that nothing underflows where the quadrature reaches.
"""

from __future__ import annotations

from typing import Any

from moment_calculus.functions.families.elementary import capped_exp
from moment_calculus.functions.families.named import log_1p_exp
from moment_calculus.functions.table import activation
from moment_calculus.likelihoods.expectations import (
    check_certain,
    expectation,
    expected_value,
    log_expectation,
)
from moment_calculus.likelihoods.links import (
    expected_log_trials,
    log,
)
from moment_calculus.likelihoods.location_scale import product_or_zero
from moment_calculus.likelihoods.trials import log_orders
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.special import gammaln, namespace
from moment_calculus.operations.elementwise.elementary import power as power_of
from moment_calculus.operations.elementwise.unary import apply, is_value, scale_shift


def poisson(value: Array, rate: Any) -> Array:
    """Return E[log Poisson(value; rate)] = y E[log λ] − E[λ] − log y!."""
    return value * expected_value(log(rate)) - expected_value(rate) - gammaln(value + 1.0)


def exponential(value: Array, rate: Any) -> Array:
    """Return E[log Exponential(value; rate)] = E[log λ] − y E[λ]."""
    if is_value(value) and is_value(rate):
        return expectation(_log_gamma, value, 1.0, rate)
    return expected_value(log(rate)) - product_or_zero(expected_value(value), expected_value(rate))


def gamma(value: Array, concentration: Any, rate: Any) -> Array:
    """Return E[log Gamma(value; concentration, rate)].

    For certain k it is k E[log λ] + (k − 1) log y − y E[λ] − log Γ(k); else quadrature.
    """
    if is_value(concentration) or (is_value(value) and is_value(rate)):
        log(concentration)  # raises UnsupportedMoments if it may not be positive
        log(rate)
        return expectation(_log_gamma, value, concentration, rate)
    log_value, log_rate = expected_value(log(value)), expected_value(log(rate))
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
    """Return E[log Weibull(value; scale, concentration)] for a certain concentration k.

    It is log k − k E[log s] + (k − 1) log y − E[exp(k (log y − log s))].
    """
    check_certain(concentration=concentration)
    log_scale, log_value = log(scale), log(value)
    if is_value(value) and not is_value(scale):
        powers = scale_shift(log_value, concentration, -concentration * log_scale)
        power = expected_value(apply(activation("exp"), powers))
    else:
        power = expectation(
            lambda logs, k, y: namespace(y).exp(k * (y - logs)), log_scale, concentration, log_value
        )
    means = expected_value(log_value), expected_value(log_scale)
    linear = (concentration - 1) * means[0] - concentration * means[1]
    return log(concentration) + linear - power


def gamma_poisson(value: Array, concentration: Any, rate: Any) -> Array:
    """Return E[log GammaPoisson(value; concentration, rate)]; a random k needs quadrature.

    Source: the Poisson-gamma mixture, (λ/(1 + λ))ᵏ (1 + λ)⁻ʸ.
    """
    if is_value(concentration):
        log(concentration)  # raises UnsupportedMoments if it may not be positive
        return expectation(log_gamma_poisson_density, value, concentration, log(rate))
    shape = concentration + 0.0 * value
    trials = expected_log_trials(log(rate), shape, value, shape + value)
    return log_orders(value, shape) + trials


def log_gamma_poisson_density(value: Array, concentration: Any, log_rate: Any) -> Array:
    """Return the logarithm of Γ(k + y) / (Γ(k) y!) (λ/(1 + λ))ᵏ (1 + λ)⁻ʸ."""
    log_rate = log_rate + 0.0 * value
    log_total = log_1p_exp(log_rate)
    shape = concentration + 0.0 * value
    return log_orders(value, shape) + shape * (log_rate - log_total) - value * log_total


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
        return _gamma_terms(shape, log_value, log_rate) - value * capped_exp(log_rate)

    arguments = value, log(value), concentration, log(rate)
    return log_expectation(density, *arguments, power=power)


def tempered_gamma_poisson(power: Any, value: Array, concentration: Any, rate: Any) -> Array:
    """Return (1/a) log E[GammaPoisson(value; concentration, rate)ᵃ]."""
    log(concentration)  # raises UnsupportedMoments if it may not be positive
    arguments = value, concentration, log(rate)
    return log_expectation(log_gamma_poisson_density, *arguments, power=power)
