"""Expected log-probabilities of NumPyro's distributions.

To add one: a function in ``moment_calculus/likelihoods`` and a few lines in ``families.py``.
Predictions of univariate distributions need nothing more.
"""

from numpyro_moments.likelihoods import classes, families
from numpyro_moments.likelihoods.classes import random_logits
from numpyro_moments.likelihoods.registry import (
    EXPECTED_LOG_PROB,
    PREDICTIVES,
    evaluate,
    expected_log_prob,
    is_predicted,
    predictive,
    predictive_moments,
)
from numpyro_moments.likelihoods.structure import has_moments

__all__ = [
    "EXPECTED_LOG_PROB",
    "PREDICTIVES",
    "classes",
    "evaluate",
    "expected_log_prob",
    "families",
    "has_moments",
    "is_predicted",
    "predictive",
    "predictive_moments",
    "random_logits",
]
