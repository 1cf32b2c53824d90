"""Register the families of the calculus and NumPyro's own distributions in the tables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.likelihoods.expectations import check_certain
from moment_calculus.likelihoods.families import FAMILIES, Family
from moment_calculus.predictions.marginals import Marginal, VectorMarginal
from numpyro_moments.likelihoods.expected import (
    TABLES,
    TEMPERED,
    expected_log_prob,
    predictive_moments,
)

_ODDS = ("logits", "probs")


def kinds_of(family: Family) -> list[type]:
    """Return NumPyro's classes of a family."""
    ends = [name.capitalize() for name in _ODDS] if family.odds else [""]
    kinds = [getattr(dist, f"{family.name}{end}", None) for end in ends]
    return [kind for kind in kinds if kind]


def _read(family: Family, fn: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the parameters in the order of the family, and the given odds by name."""
    names = [name for name in _ODDS if name in fn.arg_constraints] if family.odds else []
    parameters = [getattr(fn, name) for name in family.parameters.split()]
    return parameters, {name: getattr(fn, name) for name in names}


for _family in FAMILIES:
    TABLES.serve(_family, kinds_of(_family), _read)
TABLES.serve_factor(dist.Delta, "log_density")
TABLES.serve_factor(dist.Unit, "log_factor")  # of numpyro.factor


def _components(name: str, fn: Any) -> Marginal:
    """Return the marginals of a multivariate Normal, whose components are Normal."""

    def covariances() -> tuple[jax.Array, jax.Array]:
        noise = _root(fn)
        return _multivariate_normal_predictive(fn)[-1].covariance_matrix, noise @ noise.mT

    return VectorMarginal(name, type(fn).__name__, covariances)


def _root(fn: Any) -> jax.Array:
    """Return the Cholesky factor of a multivariate Normal's covariance, which is certain."""
    if not isinstance(fn, dist.LowRankMultivariateNormal):
        return fn.scale_tril
    check_certain(cov_factor=fn.cov_factor, cov_diag=fn.cov_diag)
    return jnp.linalg.cholesky(fn.covariance_matrix)


@predictive_moments(dist.MultivariateNormal, dist.LowRankMultivariateNormal, marginal=_components)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    root = _root(fn)
    mean, epistemic, aleatoric, covariance = likelihoods.multivariate_normal_predictive(
        fn.loc, root
    )
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance)


@expected_log_prob(dist.LowRankMultivariateNormal)
def _low_rank_normal(fn: Any, value: Any) -> jax.Array:
    return likelihoods.multivariate_normal(value, fn.loc, _root(fn))


@TEMPERED.register(dist.LowRankMultivariateNormal)
def _tempered_low_rank_normal(fn: Any, value: Any, power: Any) -> jax.Array:
    return likelihoods.tempered_multivariate_normal(power, value, fn.loc, _root(fn))


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> jax.Array:
    check_certain(alpha=fn.alpha, beta=fn.beta)
    moments = value.gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.ImproperUniform)
def _improper_uniform(fn: dist.ImproperUniform, value: Any) -> jax.Array:
    return jnp.zeros(fn.batch_shape)


@TEMPERED.register(dist.ImproperUniform)
def _tempered_improper_uniform(fn: dist.ImproperUniform, value: Any, power: Any) -> jax.Array:
    return _improper_uniform(fn, value)
