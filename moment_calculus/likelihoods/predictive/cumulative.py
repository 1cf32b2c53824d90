"""Predictive distribution functions of the Normal, the Student-t and the Cauchy likelihood."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from moment_calculus.likelihoods.drivers import is_not_gaussian
from moment_calculus.likelihoods.expectations import check_certain, expected_probability
from moment_calculus.likelihoods.location_scale import student_t_log_predictive
from moment_calculus.likelihoods.normal import normal_log_predictive
from moment_calculus.likelihoods.predictive.entropies import normal_entropy, student_t_entropy
from moment_calculus.likelihoods.predictive.intervals import quantile_of_mean
from moment_calculus.likelihoods.residual import scaled_expectation
from moment_calculus.numerics.arrays import Array
from moment_calculus.numerics.quadrature import rule_on_trial
from moment_calculus.numerics.special import constants, namespace, ndtr, to_float64
from moment_calculus.operations.elementwise.arithmetic import is_value
from moment_calculus.predictions.marginals import ContinuousMarginal, Marginal, NormalMarginal

PRECISIONS, DEPTH = 256, 28.0  # nodes of the rule in _student; it omits tails of e^−DEPTH


def _cumulative(expected: Callable, value: Array, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value), y = loc + scale·ε, from E[P(ε ≤ x)] = expected(mean, variance)."""

    def plain(x: Array) -> Array:
        return expected(x, 0 * x)

    if is_not_gaussian(loc):
        knots = (0.0, value)
        return expected_probability(
            lambda y, m, s: plain((y - m) / s), value, loc, scale, knots=knots
        )
    return scaled_expectation(expected, plain, value, loc, scale)


def _normal(mean: Array, variance: Array) -> Array:
    return ndtr(to_float64(mean) / (1 + to_float64(variance)) ** 0.5)


def normal_cumulative(value: Array, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value) of a Normal likelihood, over parameters and noise."""
    return _cumulative(_normal, value, loc, scale)


def student_t_cumulative(value: Array, df: Any, loc: Any, scale: Any) -> Array:
    """Return P(y ≤ value) of a Student-t likelihood, over parameters and noise; certain ``df``."""
    check_certain(df=df)
    return _cumulative(partial(_student, df), value, loc, scale)


def _student(df: Any, mean: Array, variance: Array) -> Array:
    """Return E[T(x)] of the standard Student-t distribution function T for Gaussian x.

    T is that of a Normal whose precision has a Gamma distribution: trapezoidal rule over
    log τ.
    """
    mean, variance = to_float64(mean), to_float64(variance)
    xp = namespace(mean)
    df = df + 0 * mean
    reach = 2 * DEPTH / df + 2 * (DEPTH / df) ** 0.5
    start, end = -reach, xp.log1p(reach)
    count = PRECISIONS
    if tried := rule_on_trial():
        tried.used, count = True, min(PRECISIONS, 8 * tried.count // 3)
    shares = np.linspace(0.0, 1.0, count).reshape((-1,) + (1,) * len(mean.shape))
    log_precision = start + (end - start) * constants(shares, mean)
    weights = xp.exp(df / 2 * (log_precision - xp.expm1(log_precision)))
    precision = xp.exp(log_precision)
    given = ndtr(mean * (precision / (1 + precision * variance)) ** 0.5)
    return xp.sum(weights * given, axis=0) / xp.sum(weights, axis=0)


def normal_marginal(name: str, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Normal likelihood at site ``name``."""
    if not is_not_gaussian(loc) and not is_value(scale):
        return NormalMarginal(name, "Normal")
    return ContinuousMarginal(
        name,
        "Normal",
        partial(normal_cumulative, loc=loc, scale=scale),
        partial(normal_log_predictive, loc=loc, scale=scale),
        expected_entropy=lambda: normal_entropy(scale),
        mean_quantile=partial(quantile_of_mean, _itself, [loc]),
    )


def student_t_marginal(name: str, df: Any, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Student-t likelihood at site ``name``."""
    return _student_marginal(name, "StudentT", df, loc, scale)


def _student_marginal(name: str, family: str, df: Any, loc: Any, scale: Any) -> Marginal:
    return ContinuousMarginal(
        name,
        family,
        partial(student_t_cumulative, df=df, loc=loc, scale=scale),
        partial(student_t_log_predictive, df=df, loc=loc, scale=scale),
        expected_entropy=lambda: student_t_entropy(df, scale),
        mean_quantile=partial(quantile_of_mean, _itself, [loc]),
    )


def _itself(loc: Array) -> Array:
    return loc


def cauchy_marginal(name: str, loc: Any, scale: Any) -> Marginal:
    """Return the predictive distribution of a Cauchy likelihood at site ``name``."""
    return _student_marginal(name, "Cauchy", 1.0, loc, scale)
