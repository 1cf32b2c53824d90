"""The table of expected log-probabilities, dispatched on Pyro's distribution objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro.distributions as distributions
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.tensor import MomentTensor, unwrap

EXPECTED_LOG_PROB: dict[type, Callable] = {}
PREDICTIVES: dict[type, Callable[[Any], tuple]] = {}


def expected_log_prob(*types: type) -> Callable[[Callable], Callable]:
    """Register the expected log-probability of distribution types.

    The function is called with the distribution object, whose parameters may be
    :class:`~pyro_moments.MomentTensor`, and the site's value, which may be one too; it returns a
    tensor of the distribution's batch shape.

    Args:
        types: distribution classes; subclasses are served by the nearest registered one.

    Returns:
        The decorator.
    """

    def register(function: Callable) -> Callable:
        for kind in types:
            EXPECTED_LOG_PROB[kind] = function
        return function

    return register


def predictive_moments(*types: type) -> Callable[[Callable], Callable]:
    """Register the predictive moments of distribution types that are not univariate, or closer.

    The function is called with the distribution object; it returns the mean, the epistemic and the
    aleatoric variance, and a function from observations to their log predictive density.

    Args:
        types: distribution classes.

    Returns:
        The decorator.
    """

    def register(function: Callable) -> Callable:
        for kind in types:
            PREDICTIVES[kind] = function
        return function

    return register


def is_predicted(kind: type) -> bool:
    """Whether a class of distributions has predictive moments, registered or as a univariate one.

    Args:
        kind: class of distributions.
    """
    never = (
        distributions.Delta,
        distributions.Unit,
        distributions.Multinomial,
        EmpiricalBayesNormal,
        torch.distributions.Multinomial,
    )
    return kind in PREDICTIVES or not issubclass(kind, never)


def predictive(name: str, fn: Any) -> tuple:
    """Predictive moments of one site, see :func:`predictive_moments`.

    Args:
        name: the site, for messages.
        fn: its distribution.

    Raises:
        UnsupportedMoments: if the distribution has none; the message lists those that have.
    """
    kind = next((kind for kind in type(fn).__mro__ if kind in PREDICTIVES), None)
    if kind is not None:
        return PREDICTIVES[kind](fn)
    if fn.event_dim:
        raise UnsupportedMoments(
            f"site '{name}': no predictive moments for {type(fn).__name__}; there are some "
            f"for {', '.join(kind.__name__ for kind in PREDICTIVES)}, and for every univariate "
            "distribution",
            remedy="register some with @pyro_moments.predictive_moments, or use "
            "pyro.infer.Predictive with the guide to sample predictions",
        )
    if not has_moments(fn):
        return fn.mean, torch.zeros_like(fn.mean), fn.variance, fn.log_prob
    return univariate.predictive(fn)


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
    rule = rule_of(fn)
    if rule is not None:
        return rule(fn, value)
    if fn.event_dim or not _is_univariate(value):
        raise _no_rule(name, fn)
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


def rule_of(fn: Any) -> Callable | None:
    """The rule of the nearest registered class of a distribution, if there is one.

    Args:
        fn: a distribution.
    """
    kinds = (kind for kind in type(fn).__mro__ if kind in EXPECTED_LOG_PROB)
    return next((EXPECTED_LOG_PROB[kind] for kind in kinds), None)


def _no_rule(name: str, fn: Any) -> UnsupportedMoments:
    known = sorted({kind.__name__ for kind in EXPECTED_LOG_PROB})
    return UnsupportedMoments(
        f"site '{name}': no expected log-probability for {type(fn).__name__} with random "
        f"parameters or value; there is one for {', '.join(known)}, and for every univariate "
        "distribution",
        remedy="register one with @pyro_moments.expected_log_prob, or draw the latent sites by "
        "naming them in DeterministicELBO(sample_sites=...)",
    )
