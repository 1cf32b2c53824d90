"""Means of powers of likelihoods: (1/α) log E_q[p(y | f)ᵅ] of observed sites and of data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from numpyro import distributions as dist

from moment_calculus.likelihoods.families import no_tempered_log_prob
from moment_calculus.likelihoods.predictive.dependence import Parameter
from moment_calculus.likelihoods.predictive.jointly import ObservedSite, joint_power_mean
from numpyro_moments.likelihoods import univariate
from numpyro_moments.likelihoods.expected import (
    evaluate,
    feasible,
    on_arrays,
    shape_with,
    supported,
)
from numpyro_moments.likelihoods.structure import has_moments, is_random, random_leaves
from numpyro_moments.likelihoods.table import EXPECTED_LOG_PROB, TEMPERED


def tempered(name: str, fn: Any, value: Any, alpha: float) -> jax.Array:
    """Return (1/α) log E_q[p(value)ᵅ] of one site, of the distribution's batch shape."""
    site = observed(name, fn, value)
    return joint_power_mean([site], alpha, range(site.events - len(site.shape), 0))


def tempered_jointly(
    sites: Iterable[tuple[Any, ...]], alpha: float, datum: Sequence[int]
) -> jax.Array:
    """Return (1/α) log E_q[Π pᵅ] of every datum, over all that is observed of it."""
    return joint_power_mean([observed(*site) for site in sites], alpha, datum)


def observed(
    name: str, fn: Any, value: Any, scale: Any = 1.0, plates: tuple[str, ...] = ()
) -> ObservedSite:
    """Return an observed site as a product of densities of its elements."""
    # The scale multiplies the log density. Elements of the plates, given by name, are no
    # data.
    value = value if is_random(value) else jnp.asarray(value)
    shape = shape_with(fn, value)
    if 0 in shape or not (is_random(value) or has_moments(fn)):
        known = jnp.broadcast_to(evaluate(name, fn, value), shape)
        return ObservedSite(name, "", shape, 0, (), scale, lambda: known, lambda power: known)
    base, value, events, weights = _unwrapped(fn, value, scale)
    if events:
        shape = shape + tuple(fn.event_shape[:events])
    random = [*random_leaves(base), *([value] if is_random(value) else [])]
    return ObservedSite(
        name,
        type(base).__name__,
        shape,
        events,
        tuple(Parameter.of(leaf, len(base.batch_shape)) for leaf in random),
        weights,
        partial(evaluate, name, base, value),
        partial(_of_power, name, base, value),
        _normal(base, value),
        plates,
    )


def _unwrapped(fn: Any, value: Any, weights: Any) -> tuple[Any, Any, int, Any]:
    """Return the distribution of elements, a feasible value, the event axes, and weights."""
    events = 0
    while True:
        if isinstance(fn, dist.Independent):
            added = fn.reinterpreted_batch_ndims
            events, weights = events + added, _with_axes(weights, added)
        elif isinstance(fn, dist.MaskedDistribution):
            value, weights = _included(fn, value), _masked(weights, fn._mask)
        elif not isinstance(fn, dist.ExpandedDistribution):
            return fn, value, events, weights
        fn = fn.base_dist


def _with_axes(weights: Any, added: int) -> Any:
    return weights[(..., *(None,) * added)] if hasattr(weights, "shape") else weights


def _masked(weights: Any, mask: Any) -> Any:
    """Return the weights, with zeros where a mask excludes."""
    if isinstance(mask, bool):
        return weights if mask else 0.0
    return jnp.where(mask, weights, 0.0)


def _included(fn: Any, value: Any) -> Any:
    """Return the value, with feasible numbers where a mask excludes."""
    if is_random(value) or isinstance(fn._mask, bool):
        return value
    mask = jnp.reshape(fn._mask, jnp.shape(fn._mask) + (1,) * fn.event_dim)
    return jnp.where(mask, value, feasible(fn, value))


def _normal(base: Any, value: Any) -> tuple[Any, Any, Any] | None:
    if EXPECTED_LOG_PROB.kind(base) is not dist.Normal:
        return None
    base = on_arrays(base)
    return value, base.loc, base.scale


def _of_power(name: str, fn: Any, value: Any, power: Any) -> jax.Array:
    kind = EXPECTED_LOG_PROB.kind(fn)
    rule = None if kind is None else TEMPERED.get(kind)
    if rule is None and fn.event_dim:
        sites = frozenset().union(*(leaf.sites for leaf in random_leaves(fn)))
        raise no_tempered_log_prob(name, fn, TEMPERED, framework="NumPyro", sites=sites)
    if rule is None:
        found = univariate.tempered(fn, value, power)
    else:
        found = rule(on_arrays(fn), value, power)
    return found if is_random(value) else supported(fn, value, found)
