"""Expected log-probabilities and predictive moments of NumPyro's distributions."""

from numpyro_moments.likelihoods import categorical as _categorical  # noqa: F401  (its rules)
from numpyro_moments.likelihoods.expected import (
    EXPECTED_LOG_PROB,
    PREDICTIVES,
    evaluate,
    is_predicted,
    marginal,
    moments_and_law,
    predictive,
    tempered,
    tempered_jointly,
)

__all__ = [
    "EXPECTED_LOG_PROB",
    "PREDICTIVES",
    "evaluate",
    "is_predicted",
    "marginal",
    "moments_and_law",
    "predictive",
    "tempered",
    "tempered_jointly",
]
