"""Register the families of the calculus and NumPyro's own distributions in the tables."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from guides.numpyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.likelihoods.expectations import check_certain
from moment_calculus.likelihoods.families import FAMILIES, Family
from moment_calculus.likelihoods.predictions import infinite_where_undefined
from moment_calculus.predictions.marginals import Marginal, VectorMarginal
from numpyro_moments.likelihoods import univariate
from numpyro_moments.likelihoods.expected import TEMPERED, expected_log_prob, predictive_moments
from numpyro_moments.rules.table import is_random

_ODDS = ("logits", "probs")


def kinds_of(family: Family) -> dict[type, tuple[str, ...]]:
    """Return NumPyro's classes of a family, each with the names of the odds that it takes."""
    named = {f"{family.name}{name.capitalize()}": (name,) for name in _ODDS}
    kinds = named if family.odds else {family.name: ()}
    return {getattr(dist, name): given for name, given in kinds.items() if hasattr(dist, name)}


def parameters(family: Family, fn: Any) -> list[Any]:
    """Return the parameters of a distribution, in the order of its family."""
    return [getattr(fn, name) for name in family.parameters.split()]


def _serve(family: Family, kind: type, odds: tuple[str, ...]) -> None:
    def rule(fn: Any, value: Any) -> jax.Array:
        supports = family.latent if is_random(value) else family.expected
        found = NotImplemented
        if supports is not None:
            given = {name: getattr(fn, name) for name in odds}
            found = supports(value, *parameters(family, fn), **given)
        return univariate.expected(fn, value) if found is NotImplemented else found

    expected_log_prob(kind)(rule)
    if family.tempered is not None:
        TEMPERED.register(kind)(partial(_tempered, family, odds))
    if (predictive := family.predictive) is not None:
        predictive_moments(kind, marginal=partial(_marginal, family))(
            lambda fn: predictive(*parameters(family, fn))
        )
    if family.exists is not None:
        predictive_moments(kind, marginal=univariate.marginal)(partial(_existing, *family.exists))


def _existing(name: str, mean: float, variance: float, fn: Any) -> tuple:
    *moments, log_density = univariate.predictive(fn)
    return *infinite_where_undefined(moments, getattr(fn, name), (mean, variance)), log_density


def _tempered(family: Family, odds: tuple[str, ...], fn: Any, value: Any, power: Any) -> jax.Array:
    if is_random(value):
        return univariate.tempered(fn, value, power)
    assert family.tempered is not None, "a family with means of powers of its own"
    given = {name: getattr(fn, name) for name in odds}
    return family.tempered(power, value, *parameters(family, fn), **given)


def _marginal(family: Family, name: str, fn: Any) -> Marginal:
    assert family.marginal is not None, "a family with predictive moments of its own"
    return family.marginal(name, *parameters(family, fn))


for _family in FAMILIES:
    for _kind, _odds in kinds_of(_family).items():
        _serve(_family, _kind, _odds)


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


@expected_log_prob(dist.Delta)
def _delta(fn: dist.Delta, value: Any) -> jax.Array:
    return likelihoods.expected_value(fn.log_density)


@TEMPERED.register(dist.Delta)
def _tempered_delta(fn: dist.Delta, value: Any, power: Any) -> jax.Array:
    return likelihoods.tempered_factor(power, fn.log_density)


@expected_log_prob(dist.Unit)
def _factor(fn: dist.Unit, value: Any) -> jax.Array:
    """Serve ``numpyro.factor``: return the mean of a random log factor."""
    return likelihoods.expected_value(fn.log_factor)


@TEMPERED.register(dist.Unit)
def _tempered_unit(fn: dist.Unit, value: Any, power: Any) -> jax.Array:
    return likelihoods.tempered_factor(power, fn.log_factor)
