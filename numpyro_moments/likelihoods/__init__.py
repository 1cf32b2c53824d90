"""Expected log-probabilities of the host's distributions, and their predictive moments.

To add one: a function in ``moment_calculus/likelihoods`` and a line in its ``families.py``.
Predictions of univariate distributions need nothing more.
"""

from numpyro_moments.likelihoods import categorical, families  # noqa: F401  (register the rules)
from numpyro_moments.likelihoods.registry import (
    EXPECTED_LOG_PROB,
    PREDICTIVES,
    evaluate,
    is_predicted,
    predictive,
)

__all__ = ["EXPECTED_LOG_PROB", "PREDICTIVES", "evaluate", "is_predicted", "predictive"]
