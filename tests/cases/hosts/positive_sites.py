"""Positive and bounded sites under the functions that make a scale of them, with their ELBO.

The oracle integrates log p(s) + Σ log N(y; 0, f(s)) + log |ds/du| over s = T(u), u ~ N(m, d²), on
nodes; it knows the densities of SciPy and neither host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

DATA = np.array([1.0, 0.2, -0.7, 0.4])
LOCATION, SCALE = 0.3, 0.4  # of the posterior, before the transform

# Arguments of the class of both hosts, the same prior in SciPy, and the bounds of its support.
PRIORS: dict[str, tuple[tuple[float, ...], Any, tuple[float, float]]] = {
    "LogNormal": ((0.1, 0.8), stats.lognorm(0.8, scale=np.exp(0.1)), (0.0, np.inf)),
    "Gamma": ((2.0, 3.0), stats.gamma(2.0, scale=1 / 3), (0.0, np.inf)),
    "InverseGamma": ((2.0, 3.0), stats.invgamma(2.0, scale=3.0), (0.0, np.inf)),
    "HalfNormal": ((1.3,), stats.halfnorm(scale=1.3), (0.0, np.inf)),
    "HalfCauchy": ((0.7,), stats.halfcauchy(scale=0.7), (0.0, np.inf)),
    "Exponential": ((0.6,), stats.expon(scale=1 / 0.6), (0.0, np.inf)),
    "Beta": ((2.0, 1.5), stats.beta(2.0, 1.5), (0.0, 1.0)),
    "Uniform": ((0.0, 2.0), stats.uniform(0.0, 2.0), (0.0, 2.0)),
    "Uniform away from zero": ((0.5, 2.0), stats.uniform(0.5, 1.5), (0.5, 2.0)),
}
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "s": lambda xp, s: s,
    "sqrt": lambda xp, s: xp.sqrt(s),
    "1 / s": lambda xp, s: 1 / s,
    "1 / sqrt": lambda xp, s: 1 / xp.sqrt(s),
    "s ** 2": lambda xp, s: s**2,
    "s ** -0.5": lambda xp, s: s**-0.5,
    "s + 0.1": lambda xp, s: s + 0.1,
    "2 s": lambda xp, s: 2 * s,
    "log1p": lambda xp, s: xp.log1p(s),
    "exp of log": lambda xp, s: xp.exp(xp.log(s)),
}


def elbo(prior: str, function: str) -> float:
    """The evidence lower bound."""
    _, density, (low, high) = PRIORS[prior]
    z, weights = np.polynomial.hermite_e.hermegauss(120)
    u = LOCATION + SCALE * z
    if high == np.inf:
        value, slope = low + np.exp(u), u
    else:
        share = 1 / (1 + np.exp(-u))
        value = low + (high - low) * share
        slope = np.log((high - low) * share * (1 - share))
    scale = FUNCTIONS[function](np, value)
    likelihood = stats.norm.logpdf(DATA[:, None], scale=scale).sum(0)
    total = density.logpdf(value) + likelihood + slope
    entropy = 0.5 + 0.5 * np.log(2 * np.pi) + np.log(SCALE)
    return float(total @ weights / weights.sum() + entropy)
