"""Expected log-probabilities and predictive moments, dispatched on Pyro's distribution objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost

from guides.pyro.empirical_bayes import EmpiricalBayesNormal
from moment_calculus import likelihoods
from moment_calculus.activations import Integrated
from moment_calculus.composites import Composite
from moment_calculus.errors import UnsupportedMoments
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.tensor import MomentTensor, unwrap

EXPECTED_LOG_PROB: dict[type, Callable] = {}


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


def evaluate(name: str, fn: Any, value: Any) -> torch.Tensor:
    """E_q[log p(value)] of one site, of the distribution's batch shape.

    Args:
        name: the site, for messages.
        fn: its distribution.
        value: observation, or MomentTensor of a latent site.

    Raises:
        UnsupportedMoments: if the distribution has no rule; the message lists those that have.
    """
    if not isinstance(value, MomentTensor) and not has_moments(fn):
        return fn.log_prob(value)
    if isinstance(fn, torch.distributions.Independent):
        return sum_rightmost(evaluate(name, fn.base_dist, value), fn.reinterpreted_batch_ndims)
    if isinstance(fn, MaskedDistribution):
        return scale_and_mask(evaluate(name, fn.base_dist, value), mask=fn._mask)
    if isinstance(fn, ExpandedDistribution):
        return evaluate(name, fn.base_dist, value).expand(fn.batch_shape)
    if isinstance(value, MomentTensor) and not has_moments(fn) and not _is_ruled(fn):
        return _integrated_prior(name, fn, value.value)
    return _rule(name, fn)(fn, value)


def _integrated_prior(name: str, fn: Any, value: Any) -> torch.Tensor:
    """E_q[log p(z)] of a univariate prior by quadrature over the Gaussian behind z."""
    if fn.event_dim or not isinstance(value, Gaussian | Deferred):
        return _rule(name, fn)(fn, value)
    base = value.base if isinstance(value, Deferred) else value
    points = value if isinstance(value, Deferred) else (lambda u: u)
    log_prob = Integrated(lambda u: fn.log_prob(points(u)))
    return log_prob.moments(base.mean, base.variance)[0]


def _is_ruled(fn: Any) -> bool:
    return any(kind in EXPECTED_LOG_PROB for kind in type(fn).__mro__)


def has_moments(fn: Any) -> bool:
    """Whether any parameter of a distribution is random."""
    return any(
        isinstance(p, MomentTensor)
        or (isinstance(p, torch.distributions.Distribution) and has_moments(p))
        for p in vars(fn).values()
    )


def _rule(name: str, fn: Any) -> Callable:
    for kind in type(fn).__mro__:
        if kind in EXPECTED_LOG_PROB:
            return EXPECTED_LOG_PROB[kind]
    known = sorted({kind.__name__ for kind in EXPECTED_LOG_PROB})
    raise UnsupportedMoments(
        f"site '{name}': no expected log-probability for {type(fn).__name__} with random "
        f"parameters or value; there is one for {', '.join(known)}",
        remedy="register one with @pyro_moments.expected_log_prob, or draw the latent sites by "
        "naming them in DeterministicELBO(sample_sites=...)",
    )


@expected_log_prob(torch.distributions.Normal)
def _normal(fn: Any, value: Any) -> torch.Tensor:
    return likelihoods.normal(unwrap(value), unwrap(fn.loc), unwrap(fn.scale))


@expected_log_prob(torch.distributions.Categorical)
def _categorical(fn: Any, value: Any) -> torch.Tensor:
    logits = random_logits(fn)
    return likelihoods.categorical(value, logits, bound=logits.propagation.categorical)


def random_logits(fn: Any) -> Gaussian:
    """The Gaussian logits [..., classes] of a Categorical.

    Args:
        fn: a Categorical with random parameters.

    Raises:
        UnsupportedMoments: if its parameters are probabilities, or the classes are not on the
            feature axis.
    """
    logits = unwrap(vars(fn).get("logits"))
    if not isinstance(logits, Composite):
        raise UnsupportedMoments(
            "a Categorical with random parameters needs logits, not probabilities",
            sites=getattr(unwrap(vars(fn).get("probs")), "sites", ()),
            remedy="pass logits=..., without a softmax",
        )
    if logits.source.has_covariance and logits.source.axis != -1:
        raise UnsupportedMoments(
            "the classes of a Categorical are not on the feature axis of its logits",
            sites=logits.sites,
            remedy="apply the last linear map to inputs whose trailing axis is contracted",
        )
    return logits.source


@expected_log_prob(EmpiricalBayesNormal)
def _empirical_bayes(fn: EmpiricalBayesNormal, value: Any) -> torch.Tensor:
    moments = unwrap(value).gaussian()
    return fn.expected_log_prob(moments.mean, moments.variance)


@expected_log_prob(dist.Delta)
def _delta(fn: dist.Delta, value: Any) -> torch.Tensor:
    return fn.log_density
