"""Which rule of the calculus serves which of the host's distributions: a few lines for each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.likelihoods.expectations import check_certain
from numpyro_moments.likelihoods import univariate
from numpyro_moments.likelihoods.registry import expected_log_prob, predictive_moments
from numpyro_moments.likelihoods.structure import is_random


def observed(*types: type) -> Callable[[Callable], Callable]:
    """Register a rule for observations only; a random value is integrated.

    Args:
        types: distribution classes.
    """

    def register(rule: Callable) -> Callable:
        @functools.wraps(rule)
        def either(fn: Any, value: Any) -> jax.Array:
            return univariate.expected(fn, value) if is_random(value) else rule(fn, value)

        expected_log_prob(*types)(either)
        return rule

    return register


@expected_log_prob(dist.Normal)
def _normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.normal(value, fn.loc, fn.scale)


@predictive_moments(dist.Normal)
def _normal_predictive(fn: Any) -> tuple:
    moments = likelihoods.normal_predictive(fn.loc, fn.scale)
    return *moments, lambda value: likelihoods.normal_log_predictive(value, fn.loc, fn.scale)


@observed(dist.LogNormal)
def _log_normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.log_normal(value, fn.loc, fn.scale)


@expected_log_prob(dist.Laplace)
def _laplace(fn: Any, value: Any) -> jax.Array:
    return likelihoods.laplace(value, fn.loc, fn.scale)


@expected_log_prob(dist.StudentT)
def _student_t(fn: Any, value: Any) -> jax.Array:
    return likelihoods.student_t(value, fn.df, fn.loc, fn.scale)


@expected_log_prob(dist.Cauchy)
def _cauchy(fn: Any, value: Any) -> jax.Array:
    return likelihoods.cauchy(value, fn.loc, fn.scale)


@expected_log_prob(dist.MultivariateNormal)
def _multivariate_normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.multivariate_normal(value, fn.loc, fn.scale_tril)


@predictive_moments(dist.MultivariateNormal)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    return _predicted_vector(fn.loc, fn.scale_tril)


@expected_log_prob(dist.LowRankMultivariateNormal)
def _low_rank_normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.multivariate_normal(value, fn.loc, _root(fn))


@predictive_moments(dist.LowRankMultivariateNormal)
def _low_rank_normal_predictive(fn: Any) -> tuple:
    return _predicted_vector(fn.loc, _root(fn))


def _root(fn: Any) -> jax.Array:
    """Cholesky factor of the covariance of a low-rank multivariate Normal, which is certain."""
    check_certain(cov_factor=fn.cov_factor, cov_diag=fn.cov_diag)
    return jnp.linalg.cholesky(fn.covariance_matrix)


def _predicted_vector(loc: Any, root: jax.Array) -> tuple:
    mean, epistemic, aleatoric, covariance = likelihoods.multivariate_normal_predictive(loc, root)
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance).log_prob


@observed(dist.BernoulliLogits)
def _bernoulli_logits(fn: Any, value: Any) -> jax.Array:
    return likelihoods.bernoulli(value, logits=fn.logits)


@observed(dist.BernoulliProbs)
def _bernoulli_probs(fn: Any, value: Any) -> jax.Array:
    return likelihoods.bernoulli(value, probs=fn.probs)


@observed(dist.BinomialLogits)
def _binomial_logits(fn: Any, value: Any) -> jax.Array:
    return likelihoods.binomial(value, fn.total_count, logits=fn.logits)


@observed(dist.BinomialProbs)
def _binomial_probs(fn: Any, value: Any) -> jax.Array:
    return likelihoods.binomial(value, fn.total_count, probs=fn.probs)


@observed(dist.NegativeBinomialLogits)
def _negative_binomial_logits(fn: Any, value: Any) -> jax.Array:
    return likelihoods.negative_binomial(value, fn.total_count, logits=fn.logits)


@observed(dist.NegativeBinomialProbs)
def _negative_binomial_probs(fn: Any, value: Any) -> jax.Array:
    return likelihoods.negative_binomial(value, fn.total_count, probs=fn.probs)


@observed(dist.GeometricLogits)
def _geometric_logits(fn: Any, value: Any) -> jax.Array:
    return likelihoods.geometric(value, logits=fn.logits)


@observed(dist.GeometricProbs)
def _geometric_probs(fn: Any, value: Any) -> jax.Array:
    return likelihoods.geometric(value, probs=fn.probs)


@observed(dist.Poisson)
def _poisson(fn: Any, value: Any) -> jax.Array:
    return likelihoods.poisson(value, fn.rate)


@observed(dist.Exponential)
def _exponential(fn: Any, value: Any) -> jax.Array:
    return likelihoods.exponential(value, fn.rate)


@observed(dist.Gamma)
def _gamma(fn: Any, value: Any) -> jax.Array:
    return likelihoods.gamma(value, fn.concentration, fn.rate)


@observed(dist.GammaPoisson)
def _gamma_poisson(fn: Any, value: Any) -> jax.Array:
    return likelihoods.gamma_poisson(value, fn.concentration, fn.rate)


@observed(dist.Weibull)
def _weibull(fn: Any, value: Any) -> jax.Array:
    return likelihoods.weibull(value, fn.scale, fn.concentration)


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> jax.Array:
    check_certain(alpha=fn.alpha, beta=fn.beta)
    moments = value.gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.ImproperUniform)
def _improper_uniform(fn: dist.ImproperUniform, value: Any) -> jax.Array:
    return jnp.zeros(fn.batch_shape)


@expected_log_prob(dist.Delta)
def _delta(fn: dist.Delta, value: Any) -> jax.Array:
    return likelihoods.expected_value(fn.log_density)


@expected_log_prob(dist.Unit)
def _factor(fn: dist.Unit, value: Any) -> jax.Array:
    """Serve ``numpyro.factor``: the mean of a random log factor."""
    return likelihoods.expected_value(fn.log_factor)
