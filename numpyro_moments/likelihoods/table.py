"""The tables of what is known of distributions with random parameters, by their class."""

from __future__ import annotations

from numpyro import distributions as dist

from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.hosts.registry import ClassTable, LikelihoodTables
from numpyro_moments.likelihoods import univariate

UNPREDICTED = (
    dist.Delta,
    dist.Unit,
    dist.MultinomialLogits,
    dist.MultinomialProbs,
    EmpiricalBayesNormal,
)
_TABLES = LikelihoodTables("NumPyro", univariate.predictive, univariate.marginal, UNPREDICTED)
EXPECTED_LOG_PROB, PREDICTIVES = _TABLES.expected, _TABLES.predictives
expected_log_prob, predictive_moments = _TABLES.expected_log_prob, _TABLES.predictive_moments
predictive, is_predicted = _TABLES.predictive, _TABLES.is_predicted
predicted, marginal = _TABLES.predicted, _TABLES.marginal

# Called with the distribution, the observation and a power a; they return (1/a) log E[pᵃ] of the
# batch shape. A class has one if the same class has an expected log-probability.
TEMPERED = ClassTable()
