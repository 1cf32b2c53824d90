"""Predictions by draws of the latent sites, or by their means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import jax
from numpyro.distributions import ExpandedDistribution
from numpyro.distributions.batch_util import promote_batch_shape

from moment_calculus.hosts.moments import moments_over
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.likelihoods.derived import restored
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.drawn import Drawing, drawn_traces
from numpyro_moments.sites.traces import Traces
from numpyro_moments.sites.transformed import WRAPPERS


def predicted_by_particles(
    program: tuple[Callable, Callable, tuple, dict, dict],
    is_mean: bool,
    count: int,
    key: Any,
    wanted: Callable,
) -> dict[str, Any]:
    """Predictions of the sites of a model by draws of its latent sites.

    Args:
        program: model, guide, their arguments and keyword arguments, and parameters.
        is_mean: whether the means of the latent sites stand for draws.
        count: number of draws.
        key: random key.
        wanted: from traces to the sites that are predicted, by name.
    """
    kinds: dict[str, str] = {}

    def consume(traces: Traces) -> dict[str, Any]:
        sites = wanted(traces)
        kinds.update({name: site["type"] for name, site in sites.items()})
        return {
            name: restored(site["fn"]) if site["type"] == "sample" else site["value"]
            for name, site in sites.items()
        }

    def particle(key: Any) -> dict[str, Any]:
        return drawn_traces(*program, key, Drawing(is_mean, predicting=True), consume)

    found = jax.vmap(particle)(jax.random.split(key, 1 if is_mean else count))
    return {
        name: SampledPrediction(name, of_particles(part))
        if kinds[name] == "sample"
        else moments_over(part, full=False)
        for name, part in found.items()
    }


def of_particles(fn: Any) -> Any:
    """A distribution whose arrays have an axis of particles in front, with that in its batch shape.

    Args:
        fn: as ``jax.vmap`` returns it.
    """
    return _expanded_anew(promote_batch_shape(fn))


def _expanded_anew(fn: Any) -> Any:
    """An expansion that draws along axes behind those of the particles, too."""
    if not isinstance(fn, WRAPPERS):
        return fn
    base = _expanded_anew(fn.base_dist)
    if isinstance(fn, ExpandedDistribution):
        return base.expand(fn.batch_shape)
    new = copy.copy(fn)
    new.base_dist = base
    return new


def needed(key: Any, is_mean: bool) -> Any:
    """The random key that a user gives; any where nothing is drawn.

    Args:
        key: what was given; None for none.
        is_mean: whether nothing is drawn.

    Raises:
        ValueError: if it is missing.
        TypeError: if it is no key.
    """
    if key is None and not is_mean:
        raise ValueError("propagation='sampled' needs rng_key=, e.g. jax.random.key(0)")
    return jax.random.key(0) if key is None else checked_key("rng_key", key)
