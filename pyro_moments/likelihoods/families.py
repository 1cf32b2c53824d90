"""Register the families of the calculus and Pyro's own distributions in the tables."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from torch import distributions

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.likelihoods.families import FAMILIES, Family
from moment_calculus.predictions.marginals import Marginal, VectorMarginal
from pyro_moments.evaluation.tensor import unwrap
from pyro_moments.likelihoods.expected import (
    TABLES,
    TEMPERED,
    expected_log_prob,
    predictive_moments,
)

# Attributes in which torch keeps parameters before it broadcasts them.
_ATTRIBUTES = {"scale_tril": "_unbroadcasted_scale_tril"}


def kinds_of(family: Family) -> list[type]:
    """Return Pyro's class of a family in a list, which is empty if there is none."""
    kinds = [getattr(module, family.name, None) for module in (distributions, dist)]
    return [kind for kind in kinds if kind][:1]


def _read(family: Family, fn: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the parameters in the order of the family, and the given odds by name."""
    names = family.parameters.split()
    parameters = [unwrap(getattr(fn, _ATTRIBUTES.get(name, name))) for name in names]
    if not family.odds:
        return parameters, {}
    logits = vars(fn).get("logits")
    name = "probs" if logits is None or getattr(fn, "_param", logits) is not logits else "logits"
    return parameters, {name: unwrap(vars(fn)[name])}


for _family in FAMILIES:
    TABLES.serve(_family, kinds_of(_family), _read)
TABLES.serve_factor(dist.Delta, "log_density")
TABLES.serve_factor(dist.Unit, "log_factor")  # of pyro.factor


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
