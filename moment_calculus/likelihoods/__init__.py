"""Expected log-likelihoods E_q[log p(y | f)] and predictive moments of functions of Gaussians.

A family is a function from an observation and its parameters (random values or certain
arrays) to the expected log density. Parameters that depend on each other enter with their
exact covariance.
"""

from moment_calculus.likelihoods import divergences, families, joint_powers
from moment_calculus.likelihoods.classes import (
    PREDICTIVE_RULES,
    check_classes_last,
    one_hot_moments,
)
from moment_calculus.likelihoods.classes.mixtures import is_complementary
from moment_calculus.likelihoods.classes.ordered import (
    ordered_entropy,
    ordered_logistic,
    ordered_probabilities,
    quantile_of_ordered,
    tempered_ordered_logistic,
)
from moment_calculus.likelihoods.classes.registration import ClassLikelihoods, missing_logits_error
from moment_calculus.likelihoods.divergences import sum_trailing
from moment_calculus.likelihoods.expectations import (
    check_certain,
    expectation,
    expected_probability,
    expected_surprisal,
    expected_value,
    log_expectation,
    moments_of_observation,
    tempered_factor,
)
from moment_calculus.likelihoods.location_scale import (
    asymmetric_laplace,
    cauchy,
    laplace,
    log_normal,
    normal,
    normal_log_predictive,
    normal_predictive,
    student_t,
)
from moment_calculus.likelihoods.multivariate import (
    log_prob_of_image,
    multivariate_normal,
    multivariate_normal_predictive,
    noise_covariance,
    tempered_multivariate_normal,
)
from moment_calculus.likelihoods.predictions import quantile_of_mean
from moment_calculus.likelihoods.trials import (
    bernoulli,
    binomial,
    exponential,
    gamma,
    gamma_poisson,
    geometric,
    negative_binomial,
    poisson,
    weibull,
)
from moment_calculus.likelihoods.univariate import Univariate, check_unconstrained, check_univariate
from moment_calculus.operations.elementwise.joint import draw_arguments

__all__ = ["PREDICTIVE_RULES", "ClassLikelihoods", "Univariate", "asymmetric_laplace"]
__all__ += ["bernoulli", "binomial", "cauchy", "check_certain", "check_classes_last"]
__all__ += ["check_unconstrained", "check_univariate", "divergences", "draw_arguments"]
__all__ += ["expectation", "expected_probability", "expected_surprisal", "expected_value"]
__all__ += ["exponential", "families", "gamma", "gamma_poisson", "geometric", "is_complementary"]
__all__ += ["joint_powers", "laplace", "log_expectation", "log_normal", "log_prob_of_image"]
__all__ += ["missing_logits_error", "moments_of_observation", "multivariate_normal"]
__all__ += ["multivariate_normal_predictive", "negative_binomial", "noise_covariance"]
__all__ += ["normal", "normal_log_predictive", "normal_predictive", "one_hot_moments"]
__all__ += ["ordered_entropy", "ordered_logistic", "ordered_probabilities", "poisson"]
__all__ += ["quantile_of_mean", "quantile_of_ordered", "student_t", "sum_trailing"]
__all__ += ["tempered_factor", "tempered_multivariate_normal", "tempered_ordered_logistic"]
__all__ += ["weibull"]
