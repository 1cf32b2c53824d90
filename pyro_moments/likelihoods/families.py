"""Which rule of the calculus serves which of the host's distributions: a few lines for each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch
from torch import distributions

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.registry import expected_log_prob, predictive_moments


def observed(*types: type) -> Callable[[Callable], Callable]:
    """Register a rule for observations only; a random value is integrated.

    Args:
        types: distribution classes.
    """

    def register(rule: Callable) -> Callable:
        @functools.wraps(rule)
        def either(fn: Any, value: Any) -> torch.Tensor:
            return univariate.expected(fn, value) if _is_random(value) else rule(fn, value)

        expected_log_prob(*types)(either)
        return rule

    return register


def _is_random(value: Any) -> bool:
    return isinstance(value, MomentTensor)


@expected_log_prob(distributions.Normal)
def _normal(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.normal(unwrap(value), unwrap(fn.loc), unwrap(fn.scale))


@predictive_moments(distributions.Normal)
def _normal_predictive(fn: Any) -> tuple:
    loc, scale = unwrap(fn.loc), unwrap(fn.scale)
    moments = likelihoods.normal_predictive(loc, scale)
    return *moments, lambda value: likelihoods.normal_log_predictive(value, loc, scale)


@observed(distributions.LogNormal)
def _log_normal(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.log_normal(value, unwrap(fn.loc), unwrap(fn.scale))


@expected_log_prob(distributions.Laplace)
def _laplace(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.laplace(unwrap(value), unwrap(fn.loc), unwrap(fn.scale))


@expected_log_prob(distributions.StudentT)
def _student_t(fn: Any, value: Any) -> torch.Tensor:
    df, loc, scale = map(unwrap, (fn.df, fn.loc, fn.scale))
    return likelihoods.student_t(unwrap(value), df, loc, scale)


@expected_log_prob(distributions.Cauchy)
def _cauchy(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.cauchy(unwrap(value), unwrap(fn.loc), unwrap(fn.scale))


@expected_log_prob(distributions.MultivariateNormal)
def _multivariate_normal(fn: Any, value: Any) -> torch.Tensor:
    root = unwrap(fn._unbroadcasted_scale_tril)
    return likelihoods.multivariate_normal(unwrap(value), unwrap(fn.loc), root)


@predictive_moments(distributions.MultivariateNormal)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    root = fn._unbroadcasted_scale_tril
    parts = likelihoods.multivariate_normal_predictive(unwrap(fn.loc), root)
    mean, epistemic, aleatoric, covariance = parts
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance).log_prob


def odds(fn: Any) -> dict[str, Any]:
    """The logits or the probabilities that a distribution was given.

    Args:
        fn: a distribution with a parameter of either kind.
    """
    name = "logits" if "logits" in vars(fn) and fn._param is vars(fn)["logits"] else "probs"
    return {name: unwrap(fn._param)}


@observed(distributions.Bernoulli)
def _bernoulli(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.bernoulli(value, **odds(fn))


@observed(distributions.Binomial)
def _binomial(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.binomial(value, unwrap(fn.total_count), **odds(fn))


@observed(distributions.NegativeBinomial)
def _negative_binomial(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.negative_binomial(value, unwrap(fn.total_count), **odds(fn))


@observed(distributions.Geometric)
def _geometric(fn: Any, value: Any) -> torch.Tensor:
    name = "logits" if "logits" in vars(fn) else "probs"
    return likelihoods.geometric(value, **{name: unwrap(vars(fn)[name])})


@observed(distributions.Poisson)
def _poisson(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.poisson(value, unwrap(fn.rate))


@observed(distributions.Exponential)
def _exponential(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.exponential(value, unwrap(fn.rate))


@observed(distributions.Gamma)
def _gamma(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.gamma(value, unwrap(fn.concentration), unwrap(fn.rate))


@observed(dist.GammaPoisson)
def _gamma_poisson(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.gamma_poisson(value, unwrap(fn.concentration), unwrap(fn.rate))


@observed(distributions.Weibull)
def _weibull(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.weibull(value, unwrap(fn.scale), unwrap(fn.concentration))


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> torch.Tensor:
    moments = unwrap(value).gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.Delta)
def _delta(fn: dist.Delta, value: Any) -> torch.Tensor:
    return fn.log_density


@expected_log_prob(dist.Unit)
def _factor(fn: dist.Unit, value: Any) -> torch.Tensor:
    """Serve ``pyro.factor``: the mean of a random log factor."""
    return likelihoods.expected_value(unwrap(fn.log_factor))
