"""Tables of expected log-probabilities and predictive moments, by class of distribution."""

from __future__ import annotations

from numpyro import distributions as dist

from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.likelihoods.families import LikelihoodTables
from moment_calculus.numerics.rulebook import ClassTable
from numpyro_moments.likelihoods import univariate

NEEDS_RULE = (
    dist.Delta,
    dist.Unit,
    dist.MultinomialLogits,
    dist.MultinomialProbs,
    EmpiricalBayesNormal,
)
_TABLES = LikelihoodTables("NumPyro", univariate.predictive, univariate.marginal, NEEDS_RULE)
EXPECTED_LOG_PROB, PREDICTIVES = _TABLES.expected, _TABLES.prediction_rules
expected_log_prob, predictive_moments = _TABLES.expected_log_prob, _TABLES.predictive_moments
predictive, is_predicted = _TABLES.predictive, _TABLES.is_predicted
moments_and_law, marginal = _TABLES.moments_and_law, _TABLES.marginal

# Functions of the distribution, the observation and a power a, which return (1/a) log
# E[pᵃ] of the batch shape. Each is for a class that also has an expected log-probability.
TEMPERED = ClassTable()
