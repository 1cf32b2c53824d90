"""Power means of random factors."""

from __future__ import annotations

from typing import Any

from moment_calculus.likelihoods.expectations import log_expectation
from moment_calculus.numerics.arrays import Array
from moment_calculus.values import Gaussian


def tempered_factor(power: Any, log_factor: Any) -> Array:
    """Return (1/a) log E[exp(a f)] of a log factor f: m + ½ a v of a Gaussian, else quadrature."""
    if isinstance(log_factor, Gaussian):
        return log_factor.mean + 0.5 * power * log_factor.variance
    return log_expectation(lambda f: f, log_factor, power=power)
