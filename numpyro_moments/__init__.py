"""Sampling-free Bayesian inference for NumPyro by analytic moment propagation."""

try:
    import jax  # noqa: F401
    import numpyro  # noqa: F401
except ImportError as error:
    raise ImportError(
        'numpyro_moments needs NumPyro and JAX: pip install "pyro-moments[numpyro]"'
    ) from error

from moment_calculus.errors import (
    CovarianceDroppedWarning,
    DependenceWarning,
    UnsupportedMoments,
)
from moment_calculus.moments import Moments
from numpyro_moments import rules as _rules  # noqa: F401  (registers the rules)
from numpyro_moments.propagate import propagate
from numpyro_moments.rules.table import moment_rule

__all__ = [
    "CovarianceDroppedWarning",
    "DependenceWarning",
    "Moments",
    "UnsupportedMoments",
    "moment_rule",
    "propagate",
]
