"""Means of powers of likelihoods: (1/α) log E_q[p(y | f)ᵅ] of observed sites and of data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import torch
from pyro.distributions.torch_distribution import ExpandedDistribution, MaskedDistribution

from moment_calculus.likelihoods.families import no_tempered_log_prob
from moment_calculus.likelihoods.predictive.dependence import Parameter
from moment_calculus.likelihoods.predictive.jointly import ObservedSite, joint_power_mean
from pyro_moments.evaluation.tensor import MomentTensor, unwrap
from pyro_moments.likelihoods import univariate
from pyro_moments.likelihoods.expected import (
    certain_log_prob,
    check_support,
    evaluate,
    explain_precision,
)
from pyro_moments.likelihoods.structure import random_tensors
from pyro_moments.likelihoods.table import EXPECTED_LOG_PROB, TEMPERED


def tempered(name: str, fn: Any, value: Any, alpha: float) -> torch.Tensor:
    """Return (1/α) log E_q[p(value)ᵅ] of one site, of the distribution's batch shape."""
    site = observed(name, fn, value)
    return joint_power_mean([site], alpha, range(site.events - len(site.shape), 0))


def tempered_jointly(
    sites: Iterable[tuple[Any, ...]], alpha: float, datum: Sequence[int]
) -> torch.Tensor:
    """Return (1/α) log E_q[Π pᵅ] of every datum, over all that is observed of it."""
    return joint_power_mean([observed(*site) for site in sites], alpha, datum)


def observed(
    name: str, fn: Any, value: Any, scale: Any = 1.0, plates: tuple[str, ...] = ()
) -> ObservedSite:
    # The scale multiplies the log density. Elements of the plates, given by name, are no
    # data.
    """Return an observed site as a product of densities of its elements."""
    if (log_prob := certain_log_prob(fn, value)) is not None:
        shape = tuple(log_prob.shape)
        return ObservedSite(name, "", shape, 0, (), scale, lambda: log_prob, lambda power: log_prob)
    base, shape, events, weights = _unwrapped(fn, scale)
    random = [*random_tensors(base), *([value] if isinstance(value, MomentTensor) else [])]
    own = value.shape[: len(value.shape) - base.event_dim]
    return ObservedSite(
        name,
        type(base).__name__,
        tuple(torch.broadcast_shapes(shape, own)),
        events,
        tuple(Parameter.of(unwrap(tensor), len(base.batch_shape)) for tensor in random),
        weights,
        partial(evaluate, name, base, value),
        partial(_of_power, name, base, value),
        _normal(base, value),
        plates,
    )


def _unwrapped(fn: Any, weights: Any) -> tuple[Any, torch.Size, int, Any]:
    """Return the distribution of elements, their shape, the number of event axes, and weights."""
    shape, events = fn.batch_shape, 0
    while True:
        if isinstance(fn, torch.distributions.Independent):
            added = fn.reinterpreted_batch_ndims
            shape, events = shape + fn.event_shape[:added], events + added
            weights = _with_axes(weights, added)
        elif isinstance(fn, MaskedDistribution):
            weights = _masked(weights, fn._mask)
        elif not isinstance(fn, ExpandedDistribution):
            return fn, shape, events, weights
        fn = fn.base_dist


def _with_axes(weights: Any, added: int) -> Any:
    return weights[(..., *(None,) * added)] if isinstance(weights, torch.Tensor) else weights


def _masked(weights: Any, mask: Any) -> Any:
    """Return the weights, with zeros where a mask excludes."""
    if isinstance(mask, bool):
        return weights if mask else 0.0
    return torch.where(mask, weights, torch.zeros((), device=mask.device))


def _normal(base: Any, value: Any) -> tuple[Any, Any, Any] | None:
    if EXPECTED_LOG_PROB.kind(base) is torch.distributions.Normal:
        return unwrap(value), unwrap(base.loc), unwrap(base.scale)
    return None


def _of_power(name: str, fn: Any, value: Any, power: Any) -> torch.Tensor:
    if not isinstance(value, MomentTensor) and fn._validate_args:
        check_support(fn, value)
    kind = EXPECTED_LOG_PROB.kind(fn)
    rule = None if kind is None else TEMPERED.get(kind)
    if rule is None and fn.event_dim:
        sites = frozenset().union(*(tensor.value.sites for tensor in random_tensors(fn)))
        raise no_tempered_log_prob(name, fn, TEMPERED, framework="Pyro", sites=sites)
    rule_or_quadrature = rule or univariate.tempered
    return explain_precision(lambda fn, value: rule_or_quadrature(fn, value, power), fn, value)
