"""Expected log-likelihoods E_q[log p(y | f)] and predictive moments, for functions of Gaussians.

One file for each family. Parameters are live values or certain arrays; parameters that depend on
each other enter with their exact covariance. A family is a function from an observation and its
parameters to the expected log density; predictive moments and densities of every univariate
likelihood come from :func:`moments_of_observation` and :func:`log_expectation`.
"""

from moment_calculus.likelihoods.categorical import (
    categorical,
    categorical_sampled,
    check_classes_last,
    multinomial,
    one_hot_moments,
)
from moment_calculus.likelihoods.drivers import drawn
from moment_calculus.likelihoods.expectations import (
    expectation,
    expected_probability,
    expected_value,
    log_expectation,
    moments_of_observation,
)
from moment_calculus.likelihoods.location_scale import cauchy, laplace, student_t
from moment_calculus.likelihoods.multivariate import (
    multivariate_normal,
    multivariate_normal_predictive,
)
from moment_calculus.likelihoods.normal import (
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
)
from moment_calculus.likelihoods.predictive.classes import (
    check_sampled,
    tempered_categorical,
    tempered_categorical_sampled,
    tempered_multinomial_sampled,
)
from moment_calculus.likelihoods.predictive.counts import tempered_ordered_logistic
from moment_calculus.likelihoods.predictive.entropies import (
    class_information,
    expected_surprisal,
    ordered_entropy,
)
from moment_calculus.likelihoods.predictive.factors import tempered_factor
from moment_calculus.likelihoods.predictive.intervals import (
    quantile_of_classes,
    quantile_of_mean,
    quantile_of_ordered,
)
from moment_calculus.likelihoods.predictive.vectors import tempered_multivariate_normal
from moment_calculus.likelihoods.rates import exponential, gamma, gamma_poisson, poisson, weibull
from moment_calculus.likelihoods.trials import (
    bernoulli,
    binomial,
    geometric,
    negative_binomial,
    ordered_logistic,
    ordered_probabilities,
)

__all__ = [
    "bernoulli",
    "binomial",
    "categorical",
    "categorical_sampled",
    "cauchy",
    "check_classes_last",
    "check_sampled",
    "class_information",
    "drawn",
    "expectation",
    "expected_probability",
    "expected_surprisal",
    "expected_value",
    "exponential",
    "gamma",
    "gamma_poisson",
    "geometric",
    "laplace",
    "log_expectation",
    "log_normal",
    "moments_of_observation",
    "multinomial",
    "multivariate_normal",
    "multivariate_normal_predictive",
    "negative_binomial",
    "normal",
    "normal_log_predictive",
    "normal_predictive",
    "one_hot_moments",
    "ordered_entropy",
    "ordered_logistic",
    "ordered_probabilities",
    "poisson",
    "quantile_of_classes",
    "quantile_of_mean",
    "quantile_of_ordered",
    "student_t",
    "tempered_categorical",
    "tempered_categorical_sampled",
    "tempered_factor",
    "tempered_multinomial_sampled",
    "tempered_multivariate_normal",
    "tempered_ordered_logistic",
    "weibull",
]
