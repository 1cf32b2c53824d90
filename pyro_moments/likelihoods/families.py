"""Register the families of the calculus and Pyro's own distributions in the tables."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyro.distributions as dist
import torch
from torch import distributions

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.likelihoods.families import FAMILIES, Family
from moment_calculus.likelihoods.predictions import infinite_where_undefined
from moment_calculus.predictions.marginals import Marginal, VectorMarginal
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.expected import TEMPERED, expected_log_prob, predictive_moments

# Attributes in which torch keeps parameters before it broadcasts them.
_ATTRIBUTES = {"scale_tril": "_unbroadcasted_scale_tril"}


def kinds_of(family: Family) -> list[type]:
    """Return Pyro's class of a family in a list, which is empty if there is none."""
    kinds = [getattr(module, family.name, None) for module in (distributions, dist)]
    return [kind for kind in kinds if kind][:1]


def parameters(family: Family, fn: Any) -> list[Any]:
    """Return the parameters of a distribution, in the order of its family."""
    names = family.parameters.split()
    return [unwrap(getattr(fn, _ATTRIBUTES.get(name, name))) for name in names]


def odds(fn: Any) -> dict[str, Any]:
    """Return the logits or the probabilities that a distribution was given, by name."""
    logits = vars(fn).get("logits")
    name = "probs" if logits is None or getattr(fn, "_param", logits) is not logits else "logits"
    return {name: unwrap(vars(fn)[name])}


def _serve(family: Family) -> None:
    def rule(fn: Any, value: Any) -> torch.Tensor:
        supports = family.latent if isinstance(value, MomentTensor) else family.expected
        result = NotImplemented
        if supports is not None:
            given = odds(fn) if family.odds else {}
            result = supports(unwrap(value), *parameters(family, fn), **given)
        return univariate.expected(fn, value) if result is NotImplemented else result

    expected_log_prob(*kinds_of(family))(rule)
    if family.tempered is not None:
        TEMPERED.register(*kinds_of(family))(partial(_tempered, family))
    if (predictive := family.predictive) is not None:
        predictive_moments(*kinds_of(family), marginal=partial(_marginal, family))(
            lambda fn: predictive(*parameters(family, fn))
        )
    if family.exists is not None:
        predictive_moments(*kinds_of(family), marginal=univariate.marginal)(
            partial(_existing, *family.exists)
        )


def _existing(name: str, mean: float, variance: float, fn: Any) -> tuple:
    *moments, log_density = univariate.predictive(fn)
    return *infinite_where_undefined(
        moments, unwrap(getattr(fn, name)), (mean, variance)
    ), log_density


def _tempered(family: Family, fn: Any, value: Any, power: Any) -> torch.Tensor:
    if isinstance(value, MomentTensor):
        return univariate.tempered(fn, value, power)
    assert family.tempered is not None, "a family with means of powers of its own"
    given = odds(fn) if family.odds else {}
    return family.tempered(power, value, *parameters(family, fn), **given)


def _marginal(family: Family, name: str, fn: Any) -> Marginal:
    assert family.marginal is not None, "a family with predictive moments of its own"
    return family.marginal(name, *parameters(family, fn))


for _family in FAMILIES:
    _serve(_family)


def _components(name: str, fn: Any) -> Marginal:
    """Return the marginals of a multivariate Normal, whose components are Normal."""

    def covariances() -> tuple[torch.Tensor, torch.Tensor]:
        noise = fn._unbroadcasted_scale_tril @ fn._unbroadcasted_scale_tril.mT
        return _multivariate_normal_predictive(fn)[-1].covariance_matrix, noise

    return VectorMarginal(name, type(fn).__name__, covariances)


@predictive_moments(distributions.MultivariateNormal, marginal=_components)
def _multivariate_normal_predictive(fn: Any) -> tuple:
    root = fn._unbroadcasted_scale_tril
    parts = likelihoods.multivariate_normal_predictive(unwrap(fn.loc), root)
    mean, epistemic, aleatoric, covariance = parts
    return mean, epistemic, aleatoric, dist.MultivariateNormal(mean, covariance)


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> torch.Tensor:
    moments = unwrap(value).gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.ImproperUniform)
def _improper_uniform(fn: dist.ImproperUniform, value: Any) -> torch.Tensor:
    return torch.zeros(fn.batch_shape)


@TEMPERED.register(dist.ImproperUniform)
def _tempered_improper_uniform(fn: dist.ImproperUniform, value: Any, power: Any) -> torch.Tensor:
    return _improper_uniform(fn, value)


@expected_log_prob(dist.Delta)
def _delta(fn: dist.Delta, value: Any) -> torch.Tensor:
    return fn.log_density


@TEMPERED.register(dist.Delta)
def _tempered_delta(fn: dist.Delta, value: Any, power: Any) -> torch.Tensor:
    return likelihoods.tempered_factor(power, unwrap(fn.log_density))


@expected_log_prob(dist.Unit)
def _factor(fn: dist.Unit, value: Any) -> torch.Tensor:
    """Serve ``pyro.factor``: return the mean of a random log factor."""
    return likelihoods.expected_value(unwrap(fn.log_factor))


@TEMPERED.register(dist.Unit)
def _tempered_unit(fn: dist.Unit, value: Any, power: Any) -> torch.Tensor:
    return likelihoods.tempered_factor(power, unwrap(fn.log_factor))
