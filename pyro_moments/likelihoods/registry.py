"""The table of expected log-probabilities, dispatched on Pyro's distribution objects."""

from __future__ import annotations

from typing import Any

import pyro.distributions as distributions
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.hosts.registry import LikelihoodTables
from moment_calculus.hosts.wording import no_expected_log_prob
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.structure import has_moments


def _univariate_predictive(fn: Any) -> tuple:
    if not has_moments(fn):
        return fn.mean, torch.zeros_like(fn.mean), fn.variance, fn.log_prob
    return univariate.predictive(fn)


_TABLES = LikelihoodTables(
    "Pyro",
    _univariate_predictive,
    unpredicted=(
        distributions.Delta,
        distributions.Unit,
        distributions.Multinomial,
        EmpiricalBayesNormal,
        torch.distributions.Multinomial,
    ),
)
EXPECTED_LOG_PROB, PREDICTIVES = _TABLES.expected, _TABLES.predictives
expected_log_prob, predictive_moments = _TABLES.expected_log_prob, _TABLES.predictive_moments
predictive, is_predicted = _TABLES.predictive, _TABLES.is_predicted


def evaluate(name: str, fn: Any, value: Any) -> torch.Tensor:
    """E_q[log p(value)] of one site, of the distribution's batch shape.

    A registered rule serves if there is one, else any univariate distribution is integrated.

    Args:
        name: the site, for messages.
        fn: its distribution.
        value: observation, or MomentTensor of a latent site.

    Raises:
        UnsupportedMoments: if the distribution has no rule; the message lists those that have.
        ValueError: the distribution's own, if an observation is outside its support.
    """
    if not isinstance(value, MomentTensor) and not has_moments(fn):
        return fn.log_prob(value)
    if isinstance(fn, torch.distributions.Independent):
        return sum_rightmost(evaluate(name, fn.base_dist, value), fn.reinterpreted_batch_ndims)
    if isinstance(fn, MaskedDistribution):
        return scale_and_mask(evaluate(name, fn.base_dist, value), mask=fn._mask)
    if isinstance(fn, ExpandedDistribution):
        return evaluate(name, fn.base_dist, value).expand(fn.batch_shape)
    if not isinstance(value, MomentTensor) and fn._validate_args:
        _check_support(fn, value)
    rule = EXPECTED_LOG_PROB.nearest(fn)
    if rule is not None:
        return rule(fn, value)
    if fn.event_dim or not _is_univariate(value):
        raise no_expected_log_prob(name, fn, EXPECTED_LOG_PROB, host="Pyro")
    return univariate.expected(fn, value)


def _check_support(fn: Any, value: torch.Tensor) -> None:
    """The host's own check of observations; shapes and NaN are refused later, by name."""
    try:
        torch.broadcast_shapes(value.shape, fn.batch_shape + fn.event_shape)
    except RuntimeError:
        return
    if not value.isnan().any():
        fn._validate_sample(value)


def _is_univariate(value: Any) -> bool:
    """Whether an observation, or the value of a latent site, has components of their own."""
    return isinstance(unwrap(value), torch.Tensor | Gaussian | Deferred)
