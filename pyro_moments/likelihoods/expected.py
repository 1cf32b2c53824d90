"""Expected log-probabilities of sites, by the nearest rule of the table or by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution
from pyro.distributions.util import scale_and_mask, sum_rightmost

from moment_calculus.likelihoods.families import no_expected_log_prob
from moment_calculus.values import Deferred, Gaussian
from pyro_moments.evaluation.precision import mixed_precision_error
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.structure import has_moments
from pyro_moments.likelihoods.table import EXPECTED_LOG_PROB


def evaluate(name: str, fn: Any, value: Any) -> torch.Tensor:
    """Return E_q[log p(value)] of one site, of the distribution's batch shape.

    Any univariate distribution without a rule is integrated numerically.
    """
    if (log_prob := certain_log_prob(fn, value)) is not None:
        return log_prob
    if isinstance(fn, torch.distributions.Independent):
        return sum_rightmost(evaluate(name, fn.base_dist, value), fn.reinterpreted_batch_ndims)
    if isinstance(fn, MaskedDistribution):
        return scale_and_mask(evaluate(name, fn.base_dist, value), mask=fn._mask)
    if isinstance(fn, ExpandedDistribution):
        return evaluate(name, fn.base_dist, value).expand(fn.batch_shape)
    if not isinstance(value, MomentTensor) and fn._validate_args:
        check_support(fn, value)
    rule = EXPECTED_LOG_PROB.nearest(fn)
    if rule is not None:
        return explain_precision(rule, fn, value)
    if fn.event_dim or not _is_univariate(value):
        raise no_expected_log_prob(name, fn, EXPECTED_LOG_PROB, framework="Pyro")
    return univariate.expected(fn, value)


def explain_precision(rule: Callable, fn: Any, value: Any) -> torch.Tensor:
    """Apply a rule; if operands differ in precision, raise an error that names them."""
    try:
        return rule(fn, value)
    except RuntimeError as error:
        refusal = mixed_precision_error(error, {"the observation": value, **vars(fn)})
        raise refusal or error from None


def certain_log_prob(fn: Any, value: Any) -> torch.Tensor | None:
    """Return the log density if nothing is random, zeros for an empty batch, and None else."""
    if not isinstance(value, MomentTensor) and not has_moments(fn):
        return fn.log_prob(value)
    return torch.zeros(fn.batch_shape, device=value.device) if 0 in fn.batch_shape else None


def check_support(fn: Any, value: torch.Tensor) -> None:
    """Validate observations as the distribution does if shapes broadcast and none is NaN."""
    # Shapes and NaN get better errors later.
    if _broadcast(value.shape, fn.batch_shape + fn.event_shape) and not value.isnan().any():
        fn._validate_sample(value)


def _broadcast(shape: torch.Size, other: torch.Size) -> bool:
    """Return whether two shapes broadcast; equal ones are the fast case."""
    if shape == other:
        return True
    try:
        torch.broadcast_shapes(shape, other)
    except RuntimeError:
        return False
    return True


def _is_univariate(value: Any) -> bool:
    """Return whether an observation or a latent value has moments by component."""
    return isinstance(unwrap(value), torch.Tensor | Gaussian | Deferred)
