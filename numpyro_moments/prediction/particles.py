"""Predict sites by draws of the latent sites, or by their means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from numpyro.distributions import Distribution, ExpandedDistribution
from numpyro.distributions.batch_util import promote_batch_shape

from moment_calculus.predictions.moments import moments_of_draws
from numpyro_moments.evaluation.keys import checked_key
from numpyro_moments.likelihoods.derived import distributions_in, restored
from numpyro_moments.prediction.sampled import SampledPrediction
from numpyro_moments.sites.drawn_traces import Drawing, drawn_traces
from numpyro_moments.sites.posteriors import WRAPPERS
from numpyro_moments.sites.traces import Traces


def predict_by_particles(
    program: tuple[Callable, Callable, tuple, dict, dict],
    is_mean: bool,  # whether the means of the latent sites replace draws
    count: int,
    key: Any,
    wanted: Callable,  # from traces to the sites that are predicted, by name
) -> dict[str, Any]:
    """Return the predictions of a model's sites by draws of its latent sites."""
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
        else moments_of_draws(part, full=False)
        for name, part in found.items()
    }


def of_particles(fn: Any) -> Any:
    """Return a distribution from ``jax.vmap`` with the axis of particles in its batch shape."""
    # NumPyro enlarges the batch shape of a distribution, but not those of inner ones from
    # which it draws, such as the Chi2 of a StudentT: all particles would have the same
    # noise.
    if isinstance(fn, ExpandedDistribution):
        return of_particles(_aligned(fn.base_dist, fn)).expand(_batch_shape(fn))
    new = promote_batch_shape(fn)
    if isinstance(fn, WRAPPERS):
        new.base_dist = of_particles(fn.base_dist)
        return new
    inside = {name: part for name, part in vars(fn).items() if isinstance(part, Distribution)}
    vars(new).update({name: of_particles(_aligned(part, fn)) for name, part in inside.items()})
    return new


def _batch_shape(fn: Any) -> tuple[int, ...]:
    """Return the batch shape of an expansion, with particles in front."""
    return (len(jax.tree.leaves(fn)[0]), *fn.batch_shape)


def _aligned(part: Any, fn: Any) -> Any:
    """Return an inner distribution with axes of size one for the batch axes that it lacks."""
    missing = len(fn.batch_shape) - len(part.batch_shape)
    if missing <= 0:
        return part
    new = jax.tree.map(lambda leaf: jnp.expand_dims(leaf, range(1, 1 + missing)), part)
    for each in distributions_in(new):
        each._batch_shape = (1,) * missing + each.batch_shape
    return new


def needed(key: Any, is_mean: bool) -> Any:
    """Return the random key that a user gave, or any key if nothing is drawn; else raise."""
    if key is None and not is_mean:
        raise ValueError("propagation='sampled' needs rng_key=, e.g. jax.random.key(0)")
    return jax.random.key(0) if key is None else checked_key("rng_key", key)
